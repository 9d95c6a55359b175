package drivertest

import (
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// The rogue tests run a guest that does not follow its part (package rogue):
// what a driver promises does not depend on what runs inside.
func rogueTests() []test {
	return []test{
		{name: "Rogue/CloseUnblocks", walls: true, run: testRogueCloseUnblocks},
		{name: "Rogue/StopKillsAfterGrace", walls: true, run: testRogueStop},
		{name: "Rogue/StreamIsBinaryClean", walls: true, run: testRogueStream},
		{name: "Rogue/DiesAtOnce", walls: true, run: testRogueExit},
	}
}

// rogue chooses the rogue guest.
func (e *env) rogue(mode string) func(*driver.Spec) {
	return func(s *driver.Spec) {
		s.Guest = driver.Guest{Path: e.roguePath(), Env: []string{"ROGUE=" + mode}}
	}
}

// startRogue starts a sandbox with the rogue guest and opens a stream.
func startRogue(t *testing.T, e *env, mode string) (string, io.ReadWriteCloser) {
	t.Helper()
	id := e.create(t, e.rogue(mode))
	if err := e.d.Start(ctx(t), id); err != nil {
		t.Fatalf("start: %s", causes(err))
	}
	stream, err := e.d.Dial(ctx(t), id)
	if err != nil {
		t.Fatalf("dial: %s", causes(err))
	}
	t.Cleanup(func() { stream.Close() })
	return id, stream
}

func testRogueCloseUnblocks(t *testing.T, e *env) {
	id, stream := startRogue(t, e, "deaf")
	read, write := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := stream.Read(make([]byte, 1))
		read <- err
	}()
	go func() {
		// More than any buffer on the way holds: it cannot succeed.
		_, err := stream.Write(make([]byte, 64<<20))
		write <- err
	}()
	finishes(t, "Close", func() { stream.Close() })
	for what, c := range map[string]chan error{"Read": read, "Write": write} {
		select {
		case err := <-c:
			if err == nil {
				t.Errorf("%s succeeded on a closed stream", what)
			}
		case <-ctx(t).Done():
			t.Errorf("%s is still blocked after Close", what)
		}
	}
	// The end of a sandbox ends a stream that nobody serves.
	again, err := e.d.Dial(ctx(t), id)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := e.d.Stop(ctx(t), id, 0); err != nil {
		t.Fatal(err)
	}
	finishes(t, "Read", func() {
		if n, err := again.Read(make([]byte, 1)); err == nil {
			t.Errorf("Read gave %d bytes from a stopped sandbox", n)
		}
	})
	finishes(t, "Write", func() {
		if _, err := again.Write(make([]byte, 64<<20)); err == nil {
			t.Error("Write into a stopped sandbox succeeded")
		}
	})
}

func testRogueStop(t *testing.T, e *env) {
	id, stream := startRogue(t, e, "noisy")
	// The echo says that PID 1 has come to ignoring signals. From then on nobody
	// reads the stream, though the relay has more to say.
	if _, err := stream.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	finishes(t, "the echo", func() {
		if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
	const grace = 1200 * time.Millisecond
	begin := time.Now()
	if err := e.d.Stop(ctx(t), id, grace); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < grace {
		t.Errorf("killed after %v, before its grace of %v", took, grace)
	}
	e.wantState(t, id, driver.Stopped)
}

func testRogueStream(t *testing.T, e *env) {
	_, stream := startRogue(t, e, "noisy")
	const size = 8 << 20
	sent, back := sha256.New(), sha256.New()
	wrote := make(chan error, 1)
	go func() {
		src := io.LimitReader(rand.NewChaCha8([32]byte{3}), size)
		_, err := io.Copy(io.MultiWriter(stream, sent), src)
		wrote <- err
	}()
	finishes(t, "the echo", func() {
		if n, err := io.CopyN(back, stream, size); err != nil {
			t.Errorf("%d of %d bytes came back: %v", n, size, err)
		}
	})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if string(sent.Sum(nil)) != string(back.Sum(nil)) {
		t.Error("what came back is not what was sent")
	}
}

// testRogueExit holds that a guest that ends at once is noticed: by Start, or
// by whoever asks next.
func testRogueExit(t *testing.T, e *env) {
	id := e.create(t, e.rogue("exit"))
	err := e.d.Start(ctx(t), id)
	if err != nil {
		if _, ok := errors.AsType[*fault.Error](err); !ok {
			t.Errorf("%v is no fault", err)
		}
	}
	s, err := e.d.Wait(ctx(t), id)
	if err != nil {
		t.Fatal(err)
	}
	checkState(t, s, id, driver.Stopped)
	_, err = e.d.Dial(ctx(t), id)
	wantCode(t, err, fault.State)
}
