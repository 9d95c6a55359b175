package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// piece is output of one kind, the model of what a ring has been given.
type piece struct {
	kind wire.Kind
	b    byte
}

// decode reads frames back into output.
func decode(t *testing.T, frames []byte) (out []piece) {
	t.Helper()
	r := wire.NewFrameReader(bytes.NewReader(frames))
	for {
		kind, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Payload()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range b {
			out = append(out, piece{kind, c})
		}
	}
}

// content is what a ring holds from an offset on.
func content(t *testing.T, r *ring, offset int64) (out []piece, from int64) {
	t.Helper()
	pos, from := r.seek(offset)
	var frames []byte
	if offset > from && pos < r.head {
		frames, pos, _ = r.rest(nil, pos, int(offset-from))
		from = offset
	}
	for pos < r.head {
		b := make([]byte, 0, wire.HeaderSize+wire.MaxPayload)
		b, next, _ := r.frames(b, pos)
		if next == pos {
			t.Fatal("no progress")
		}
		pos = next
		frames = append(frames, b...)
	}
	return decode(t, frames), from
}

func checkRing(t *testing.T, r *ring, model []piece, random *rand.Rand) {
	t.Helper()
	if r.headOff != int64(len(model)) || r.head-r.tail > wire.RingSize || len(r.buf) > wire.RingSize {
		t.Fatalf("offset %d of %d, %d bytes in %d", r.headOff, len(model), r.head-r.tail, len(r.buf))
	}
	offsets := []int64{-1, 0, r.tailOff, r.headOff, r.headOff + 10}
	if r.headOff > r.tailOff {
		offsets = append(offsets, r.tailOff+random.Int64N(r.headOff-r.tailOff))
	}
	for _, offset := range offsets {
		got, from := content(t, r, offset)
		if want := min(max(offset, r.tailOff), r.headOff); from != want {
			t.Fatalf("from offset %d it begins at %d, want %d", offset, from, want)
		}
		want := model[from:]
		if len(got) != len(want) {
			t.Fatalf("from offset %d: %d bytes, want %d", offset, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("from offset %d: byte %d differs", offset, i)
			}
		}
	}
}

func TestRing(t *testing.T) {
	for name, sizes := range map[string][]int{
		"single bytes":  {1},
		"lines":         {1, 5, 80, 200},
		"large":         {maxFrame, maxFrame - 1, maxFrame - wire.HeaderSize},
		"mixed":         {1, maxFrame, 3, 1000, 17},
		"with nothing":  {0, 1, 0, 100},
		"wrap anywhere": {4093, 4091},
	} {
		for _, merge := range []bool{false, true} {
			t.Run(fmt.Sprint(name, merge), func(t *testing.T) {
				random := rand.New(rand.NewPCG(1, 2))
				r := new(ring)
				var model []piece
				for i := range 400 {
					b := make([]byte, sizes[random.IntN(len(sizes))])
					kind := wire.KindStdout
					if random.IntN(3) == 0 {
						kind = wire.KindStderr
					}
					for j := range b {
						b[j] = byte(random.IntN(256))
						model = append(model, piece{kind, b[j]})
					}
					r.put(kind, b, merge)
					if i%37 == 0 {
						checkRing(t, r, model, random)
					}
				}
				checkRing(t, r, model, random)
			})
		}
	}
}

// A process that prints single characters fills the ring with characters and
// not with headers.
func TestRingMerges(t *testing.T) {
	r := new(ring)
	for range wire.RingSize {
		r.put(wire.KindStdout, []byte("x"), true)
	}
	if held := r.headOff - r.tailOff; held < wire.RingSize*7/8 {
		t.Errorf("holds %d bytes of output", held)
	}
}

func TestRingGrowsLazily(t *testing.T) {
	r := new(ring)
	if r.buf != nil {
		t.Error("an empty ring has a buffer")
	}
	r.put(wire.KindStdout, []byte("hello"), true)
	if len(r.buf) > 4<<10 {
		t.Errorf("five bytes take %d", len(r.buf))
	}
}

func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 2, 3, 250, 251}, uint64(1))
	f.Add(bytes.Repeat([]byte{255}, 64), uint64(7))
	f.Fuzz(func(t *testing.T, steps []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		r := new(ring)
		var model []piece
		for _, step := range steps[:min(len(steps), 40)] {
			b := make([]byte, int(step)*int(step)/2)
			kind := wire.KindStdout + wire.Kind(step&1)
			for j := range b {
				b[j] = byte(len(model) + j)
				model = append(model, piece{kind, b[j]})
			}
			r.put(kind, b[:min(len(b), maxFrame)], step&2 != 0)
			model = model[:r.headOff]
		}
		checkRing(t, r, model, random)
	})
}
