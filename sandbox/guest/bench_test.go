package guest_test

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// connectPipes connects through kernel pipes, as drivers do.
func connectPipes(b *testing.B) *guest.Conn {
	b.Helper()
	s := newSandbox(b, nil)
	pair := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		setPipeSize(b, w, 1<<20)
		return r, w
	}
	inR, inW := pair()
	outR, outW := pair()
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.agent.Serve(b.Context(), pipes{inR, outW})
	}()
	c, err := guest.Connect(b.Context(), pipes{outR, inW})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		<-served
	})
	return c
}

func BenchmarkPing(b *testing.B) {
	c := connectPipes(b)
	for b.Loop() {
		if err := c.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExec(b *testing.B) {
	c := connectPipes(b)
	n := 0
	for b.Loop() {
		n++
		finish(b, c, guest.Command{ID: fmt.Sprint(n), Args: []string{"/bin/true"}, NoStdin: true}, guest.Output{}, nil)
	}
}

const bulkSize = 64 << 20

func BenchmarkStdout(b *testing.B) {
	c := connectPipes(b)
	b.SetBytes(bulkSize)
	for b.Loop() {
		finish(b, c, guest.Command{ID: "out", Args: []string{"dd", "if=/dev/zero", "bs=256k", fmt.Sprint("count=", bulkSize/(256<<10))}, NoStdin: true}, guest.Output{Stdout: io.Discard}, nil)
	}
}

func BenchmarkStdin(b *testing.B) {
	c := connectPipes(b)
	b.SetBytes(bulkSize)
	for b.Loop() {
		finish(b, c, guest.Command{ID: "in", Args: []string{"dd", "of=/dev/null", "bs=256k"}}, guest.Output{}, io.LimitReader(zeros{}, bulkSize))
	}
}

func BenchmarkWriteFile(b *testing.B) {
	c := connectPipes(b)
	b.SetBytes(bulkSize)
	for b.Loop() {
		if err := c.WriteFile(b.Context(), "/dev/shm/sandgate-guest-bench", 0o600, io.LimitReader(zeros{}, bulkSize)); err != nil {
			b.Fatal(err)
		}
	}
	os.Remove("/dev/shm/sandgate-guest-bench")
}

func BenchmarkEcho(b *testing.B) {
	c := connectPipes(b)
	got := make(chan struct{}, 16)
	w := writerFunc(func(p []byte) (int, error) {
		for range p {
			got <- struct{}{}
		}
		return len(p), nil
	})
	p, err := c.Start(b.Context(), guest.Command{ID: "echo", Script: "stty raw -echo; printf R; exec cat", TTY: &guest.TTY{}}, guest.Output{Stdout: w})
	if err != nil {
		b.Fatal(err)
	}
	<-got
	for b.Loop() {
		if _, err := p.Write([]byte("x")); err != nil {
			b.Fatal(err)
		}
		<-got
	}
}

func finish(b *testing.B, c *guest.Conn, cmd guest.Command, out guest.Output, stdin io.Reader) {
	b.Helper()
	p, err := c.Start(b.Context(), cmd, out)
	if err != nil {
		b.Fatal(err)
	}
	if stdin != nil {
		if _, err := io.CopyBuffer(struct{ io.Writer }{p}, stdin, make([]byte, 256<<10)); err != nil {
			b.Fatal(err)
		}
		p.CloseWrite()
	}
	if exit, err := p.Wait(b.Context()); err != nil || exit.Status() != 0 {
		b.Fatalf("%+v %v", exit, err)
	}
	p.Close()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func setPipeSize(b *testing.B, f *os.File, size int) {
	raw, err := f.SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if _, err := unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size); err != nil {
			b.Logf("pipe size: %v", err)
		}
	})
}
