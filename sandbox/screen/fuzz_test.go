package screen

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// pieces are what programs, and hostile ones, print.
var pieces = []string{
	"a", "word ", "\r\n", "\n", "\b", "\t", "日", "e\u0301", "\U0001f469\u200d\U0001f4bb", "\x1b", "\x1b[", "\x1b]2;", "\x07", "\x1b\\", "\x18",
	"\x1b[H", "\x1b[2;5H", "\x1b[99;99H", "\x1b[A", "\x1b[3B", "\x1b[2C", "\x1b[9D", "\x1b[2J", "\x1b[J", "\x1b[1J", "\x1b[3J", "\x1b[K", "\x1b[1K",
	"\x1b[L", "\x1b[2M", "\x1b[3@", "\x1b[2P", "\x1b[4X", "\x1b[5b", "\x1b[65535b", "\x1b[S", "\x1b[2T", "\x1b[2;3r", "\x1b[r", "\x1b[1;999r",
	"\x1b[31m", "\x1b[0m", "\x1b[1;44m", "\x1b[38;2;1;2;3m", "\x1b[48:5:7m", "\x1b[7m", "\x1b7", "\x1b8", "\x1b[s", "\x1b[u", "\x1bM", "\x1bD", "\x1bE", "\x1bc",
	"\x1b[?1049h", "\x1b[?1049l", "\x1b[?47h", "\x1b[?47l", "\x1b[?7l", "\x1b[?7h", "\x1b[?6h", "\x1b[?6l", "\x1b[4h", "\x1b[4l", "\x1b[20h", "\x1b[?25l",
	"\x1b[?1000;1006h", "\x1b[?2004h", "\x1b[>1u", "\x1b[<u", "\x1b[=5;2u", "\x1b[>4;2m", "\x1b(0", "\x1b(B", "\x1b)0", "\x0e", "\x0f", "\x1b#8", "\x1b[!p",
	"\x1bH", "\x1b[g", "\x1b[3g", "\x1b[I", "\x1b[Z", "\x1bP1$r", "\x1b_G", "\xff", "\x9b", "\xe2\x82", "\x1b[c", "\x1b[6n", "\x1b[3;4;5;6;7;8", ";", "m", "h",
}

func random(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// check holds a screen to what a redraw promises.
func check(t *testing.T, input string, rows, cols int) {
	t.Helper()
	a := shown(rows, cols, input)
	b := shown(rows, cols, "what was here\r\nbefore")
	redraw := a.Redraw(rows, cols)
	var at Modes
	at.Write(redraw)
	_, _ = b.Write(redraw)
	if a.long {
		return // a string without an end: it is left out
	}
	if err := alike(a, b); err != nil {
		t.Fatalf("%q on %dx%d, redrawn as %q: %v", input, cols, rows, redraw, err)
	}
	if len(redraw) > (scrollback+2*rows)*(cols+2)*64+8192 {
		t.Fatalf("a redraw of %d bytes", len(redraw))
	}
	// Whatever is switched on is known, and can be switched off.
	_, _ = b.Write(at.Off())
	if b.Alternate() || b.modes != 0 || b.otherKeys != 0 || b.style != 0 || len(b.page().keys) != 0 || b.pen != (style{}) {
		t.Fatalf("%q: left on: screen %d, modes %b, keys %v, pen %v", input, b.alternate, b.modes, b.page().keys, b.pen)
	}
	if len(at.Off()) != 0 {
		t.Fatal("it is switched off twice")
	}
	_ = a.Redraw(cols, rows) // on any other terminal it does no harm
	_ = a.Redraw(1, 1)
}

func TestRandomScreens(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		input := random(r, 1+r.IntN(60))
		check(t, input, 1+r.IntN(6), 1+r.IntN(12))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzScreen(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		f.Add([]byte(random(r, 40)), byte(5), byte(9))
	}
	f.Fuzz(func(t *testing.T, input []byte, rows, cols byte) {
		check(t, string(input), int(rows%32)+1, int(cols%64)+1)
	})
}

// What a hostile program prints to keep the server busy is given up on.
func TestHostileOutput(t *testing.T) {
	const ring = 256 << 10
	for _, piece := range []string{
		"\x1b[65535b", "\x1b[2J", "\x1b[99L", "\x1b[99M", "\x1b[999S", "\x1b[999T", "\x1b[9999@", "\x1b[9999P", "\x1b#8", "\x1bc", "\x1b[?47h\x1b[?47l",
		"\x1b[38;2;1;2;3mx", "e\u0301\u0302\u0303", "\x1b]2;x", "\x1bPx", "\x1b[>1u", "\t", "\x1b[9999I", "\n", "日",
	} {
		s := New(1<<16, 1<<16)
		began := time.Now()
		_, _ = s.Write([]byte("x" + strings.Repeat(piece, ring/len(piece))))
		redraw := s.Redraw(1<<16, 1<<16)
		t.Logf("%q: %v, %d bytes, given up: %v", piece, time.Since(began), len(redraw), s.Exhausted())
		if s.work > maxWork+4*maxCells {
			t.Errorf("%q: %d cells were touched", piece, s.work)
		}
		if len(redraw) > 16<<20 {
			t.Errorf("%q: a redraw of %d bytes", piece, len(redraw))
		}
	}
}
