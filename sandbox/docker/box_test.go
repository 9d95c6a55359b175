package docker_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// box is a sandbox "box" of a driver of its own.
type box struct {
	d     *docker.Driver
	state string
	id    string
	conn  *guest.Conn
}

// stateDir makes a state folder and sees to it that nothing in the engine
// outlives it.
func stateDir(t *testing.T) string {
	t.Helper()
	engine(t)
	dir := t.TempDir()
	t.Cleanup(func() { purge(t, dir) })
	return dir
}

// purge gives a state folder up.
func purge(tb testing.TB, dir string) {
	tb.Helper()
	d := open(tb, docker.Config{StateDir: dir})
	defer d.Close()
	if err := d.Purge(context.Background()); err != nil {
		tb.Error(err)
	}
}

// spec is a good spec.
func spec(t *testing.T, id string) driver.Spec {
	t.Helper()
	return driver.Spec{ID: id, Rootfs: drivertest.BusyboxRootfs(t), Guest: driver.Guest{Path: drivertest.BuildGuest(t)}}
}

// boot makes and starts a sandbox.
func boot(t *testing.T, cfg docker.Config, change func(*driver.Spec)) *box {
	t.Helper()
	if cfg.StateDir == "" {
		cfg.StateDir = stateDir(t)
	}
	b := &box{d: open(t, cfg), state: cfg.StateDir, id: "box"}
	t.Cleanup(func() { b.d.Close() })
	s := spec(t, b.id)
	if change != nil {
		change(&s)
	}
	if err := b.d.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	return b
}

// container is the id of the sandbox's only container.
func (b *box) container(t *testing.T) string {
	t.Helper()
	list, err := engine(t).ContainerList(t.Context(), client.ContainerListOptions{
		All: true, Filters: byID(b.id).Add("label", "sandgate.state="+b.d.State()),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%s has %d containers", b.id, len(list.Items))
	}
	return list.Items[0].ID
}

func (b *box) start(t *testing.T) {
	t.Helper()
	if err := b.d.Start(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	b.connect(t)
}

func (b *box) connect(t *testing.T) {
	t.Helper()
	stream, err := b.d.Dial(t.Context(), b.id)
	if err != nil {
		t.Fatal(err, errors.Unwrap(err))
	}
	if b.conn, err = guest.Connect(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.conn.Close() })
}

// sh runs a script that must succeed.
func (b *box) sh(t *testing.T, script string) string {
	t.Helper()
	return b.run(t, guest.Command{Args: []string{"/bin/sh", "-c", script}})
}

func (b *box) run(t *testing.T, cmd guest.Command) string {
	t.Helper()
	var out bytes.Buffer
	cmd.ID, cmd.NoStdin = "run", true
	p, err := b.conn.Start(t.Context(), cmd, guest.Output{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if exit.Status() != 0 {
		t.Errorf("%q ended with %+v: %s", strings.Join(cmd.Args, " "), exit, out.String())
	}
	return out.String()
}
