package gvisor

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
	catalog "github.com/sandgate/sandgate/sandbox/image"
	"github.com/sandgate/sandgate/sandbox/store"
)

// shown is what a client of a session sees.
type shown struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func newShown() *shown { return &shown{changed: make(chan struct{})} }

func (s *shown) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
	return s.text.Write(b)
}

func (s *shown) wait(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		s.mu.Lock()
		text, changed := s.text.String(), s.changed
		s.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%q is not shown: %q", want, text)
		}
	}
}

// serve opens the state in a folder as a server does.
func serve(t *testing.T, dir string) (a *sandbox.Actor, stop func()) {
	t.Helper()
	d, err := New(Config{StateDir: filepath.Join(dir, "gvisor"), Executable: gvisortest.Executable(t)})
	must(t, err)
	needSandboxes(t, d)
	st, err := store.Open(context.Background(), store.Config{Path: filepath.Join(dir, "state", "state.db")})
	must(t, err)
	images, err := catalog.New(catalog.Config{Dir: filepath.Join(dir, "layers"), BaseImage: catalog.NoImage})
	must(t, err)
	e, err := sandbox.NewEngine(context.Background(), sandbox.Config{
		Driver: d, Store: st, Images: images, Guest: driver.Guest{Path: drivertest.BuildGuest(t)},
		OutputDir: filepath.Join(dir, "executions"), DefaultRuntime: "host:latest",
	})
	must(t, err)
	_, err = e.Reconcile(context.Background())
	must(t, err)
	return e.As(keys.Principal{ID: "alice", Role: keys.Member}), sync.OnceFunc(func() {
		must(t, e.Close())
		must(t, images.Close())
		must(t, st.Close())
		must(t, d.Close())
	})
}

// TestSessionOfWhole leaves a program on the whole screen to a pause with its
// memory and to a restart of the server, and finds it as it was.
func TestSessionOfWhole(t *testing.T) {
	dir := t.TempDir()
	a, stop := serve(t, dir)
	defer func() { stop() }()
	ctx := t.Context()
	_, err := a.Create(ctx, sandbox.CreateRequest{Name: "box"})
	must(t, err)
	defer func() { must(t, a.Delete(context.Background(), "box")) }()
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "this is line %d.\n", i+1)
	}
	must(t, a.WriteFile(ctx, "box", sandbox.File{Path: "text", Content: []byte(lines.String())}))
	open := func(name string, cmd guest.Command) (sandbox.SessionProcess, *shown, <-chan error) {
		t.Helper()
		out := newShown()
		cmd.TTY = &guest.TTY{Term: "xterm", Size: guest.Size{Rows: 20, Cols: 60}}
		p, err := a.OpenSession(ctx, "box", sandbox.SessionRequest{Name: name, Command: cmd}, guest.Output{Stdout: out})
		must(t, err)
		ended := make(chan error, 1)
		go func() {
			exit, err := p.Wait(context.Background())
			if err == nil && exit.Code != 0 {
				err = fmt.Errorf("exit %+v", exit)
			}
			ended <- err
		}()
		return p, out, ended
	}
	page := guest.Command{Args: []string{"less", "text"}, Env: []string{"LESS="}}
	p, out, ended := open("pager", page)
	out.wait(t, "this is line 19.")
	_, err = io.WriteString(p, " ")
	must(t, err)
	out.wait(t, "this is line 38.")

	began := time.Now()
	_, err = a.Pause(ctx, "box")
	must(t, err)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "was paused") {
		t.Errorf("the client over a pause: %v", err)
	}
	paused := time.Since(began)
	began = time.Now()
	p, out, ended = open("pager", page) // which resumes the sandbox
	out.wait(t, "this is line 38.")
	t.Logf("paused in %s, resumed and drawn again in %s", paused.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	_, err = io.WriteString(p, " ")
	must(t, err)
	out.wait(t, "this is line 57.")

	// More than the guest keeps goes by, and then a program that uses all of the
	// screen: it is told to draw itself anew.
	_, more, _ := open("more", guest.Command{Script: "seq 60000; exec less text", Env: []string{"LESS="}})
	more.wait(t, "this is line 19.")

	p.Close()
	<-ended
	stop()
	a, stop = serve(t, dir)
	list, err := a.Sessions(ctx, "box", false)
	if err != nil || len(list) != 2 || list[0].Status != sandbox.SessionDetached {
		t.Fatalf("found again: %+v, %v", list, err)
	}
	_, more, _ = open("more", page)
	more.wait(t, "this is line 19.")
	p, out, ended = open("pager", page)
	out.wait(t, "this is line 57.")
	_, err = io.WriteString(p, "q")
	must(t, err)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	out.wait(t, "\x1b[?1049l")
	must(t, a.KillSession(ctx, "box", "more"))
}
