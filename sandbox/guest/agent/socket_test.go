package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// socketed is an agent in this process behind a socket of its own.
type socketed struct {
	path string
	ctx  context.Context
}

func serveTestSocket(t *testing.T) *socketed {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: PID 1 serves nobody else")
	}
	dir, err := os.MkdirTemp("", "sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := New(Config{Workspace: t.TempDir(), SocketCheck: 20 * time.Millisecond})
	s, err := openSocket(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		a.serveSocket(serving, s)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(func() {
		cancel()
		a.Shutdown()
		stop()
		<-served
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	})
	return &socketed{path: s.path, ctx: ctx}
}

// connect opens a connection over a relay that runs in this process.
func (s *socketed) connect(t *testing.T) *guest.Conn {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var run sync.WaitGroup
	run.Go(func() {
		defer inR.Close()
		defer outW.Close()
		if err := relay(s.path, int(inR.Fd()), int(outW.Fd())); err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	t.Cleanup(run.Wait)
	c, err := guest.Connect(s.ctx, hostEnd{outR, inW})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

type hostEnd struct{ r, w *os.File }

func (h hostEnd) Read(b []byte) (int, error)  { return h.r.Read(b) }
func (h hostEnd) Write(b []byte) (int, error) { return h.w.Write(b) }
func (h hostEnd) Close() error                { return errors.Join(h.r.Close(), h.w.Close()) }

// chunks hands on what a process writes.
type chunks chan []byte

func (c chunks) Write(b []byte) (int, error) {
	c <- bytes.Clone(b)
	return len(b), nil
}

// foreign listens at the path and treats every client as behave says, until
// the test ends.
func foreign(t *testing.T, path string, behave func(net.Conn)) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			clients.Go(func() {
				defer c.Close()
				behave(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		clients.Wait()
	})
}

// Whatever becomes of the path, the next relay gets through, and what runs
// goes on over the connection it has.
func TestSocketBoundAnew(t *testing.T) {
	remove := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, spoil := range map[string]func(*testing.T, string){
		"removed": remove,
		"renamed": func(t *testing.T, path string) {
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Remove(path + ".old") })
		},
		"regular file": func(t *testing.T, path string) {
			remove(t, path)
			if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"dangling link": func(t *testing.T, path string) {
			remove(t, path)
			if err := os.Symlink(path+".nowhere", path); err != nil {
				t.Fatal(err)
			}
		},
		"empty directory": func(t *testing.T, path string) {
			remove(t, path)
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"listener that hangs up": func(t *testing.T, path string) {
			remove(t, path)
			foreign(t, path, func(net.Conn) {})
		},
		"listener that is mute": func(t *testing.T, path string) {
			remove(t, path)
			foreign(t, path, func(c net.Conn) { io.Copy(io.Discard, c) })
		},
		"listener that talks": func(t *testing.T, path string) {
			remove(t, path)
			foreign(t, path, func(c net.Conn) { io.WriteString(c, "220 hello\r\n") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveTestSocket(t)
			before := s.connect(t)
			out := make(chunks, 16)
			p, err := before.Start(s.ctx, guest.Command{ID: "cat", Args: []string{"cat"}}, guest.Output{Stdout: out})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // it holds more than once
				spoil(t, s.path)
				after := s.connect(t)
				if after.Hello().BootID != before.Hello().BootID {
					t.Error("this is another guest")
				}
				infos, err := after.List(s.ctx)
				if err != nil || len(infos) != 1 || infos[0].Exited || infos[0].Attached != 1 {
					t.Fatalf("list: %+v %v", infos, err)
				}
				if _, err := io.WriteString(p, "still here"); err != nil {
					t.Fatal(err)
				}
				select {
				case got := <-out:
					if string(got) != "still here" {
						t.Errorf("got %q", got)
					}
				case <-s.ctx.Done():
					t.Fatal("the process does not answer on the old connection")
				}
				info, err := os.Lstat(s.path)
				if err != nil || info.Mode() != os.ModeSocket|0o600 {
					t.Fatalf("the socket is %v (%v)", info, err)
				}
			}
		})
	}
}

// A directory may hold what somebody needs: it is moved, not emptied.
func TestSocketKeepsDirectory(t *testing.T) {
	dir := t.TempDir()
	path, fresh := filepath.Join(dir, "s"), filepath.Join(dir, "fresh")
	if err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "work"), []byte("work"), 0o600), os.WriteFile(fresh, []byte("fresh"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := place(fresh, path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "fresh" {
		t.Errorf("at the path: %q %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(fresh+".moved", "work")); err != nil || string(b) != "work" {
		t.Errorf("moved: %q %v", b, err)
	}
}

// Nobody waits for a refusal to change.
func TestRelayRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	foreign(t, path, func(c net.Conn) { c.Write([]byte{refuseByte}) })
	if _, err := dialInit(path); !errors.Is(err, errRefused) {
		t.Errorf("got %v", err)
	}
}
