package docker_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// TestHeldStill holds that a sandbox which a crash in the middle of a Save has
// left paused goes on, whatever is asked of it first.
func TestHeldStill(t *testing.T) {
	b := boot(t, docker.Config{}, nil)
	cli := engine(t)
	name := b.container(t)
	pause := func() {
		t.Helper()
		if _, err := cli.ContainerPause(t.Context(), name, client.ContainerPauseOptions{}); err != nil {
			t.Fatal(err)
		}
		if s, err := b.d.Inspect(t.Context(), b.id); err != nil || s.State != driver.Running {
			t.Errorf("held still: %+v, %v", s, err)
		}
	}
	pause()
	b.start(t)
	b.sh(t, "echo start >/f")

	pause()
	b.start(t) // Start lets it go …
	pause()
	b.connect(t) // … and so does Dial
	b.sh(t, "echo dial >>/f")

	pause()
	b.save(t)
	b.sh(t, `echo save >>/f; [ "$(cat /f | tr '\n' ' ')" = "start dial save " ]`)

	pause()
	b.stop(t)
	b.start(t)
	pause()
	if err := b.d.Remove(t.Context(), b.id); err != nil {
		t.Error(err)
	}
}

// TestServerDiesWhileHolding holds that the next server lets go what a killed
// one held still without the engine's knowledge.
func TestServerDiesWhileHolding(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("holding a container through the kernel takes root")
	}
	b := boot(t, docker.Config{}, nil)
	if err := b.d.Close(); err != nil {
		t.Fatal(err)
	}
	thaw, err := docker.LeaveHeld(b.d, b.id)
	if err != nil {
		t.Fatal(err)
	}
	defer thaw()
	b.d = open(t, docker.Config{StateDir: b.state})
	b.connect(t)
	b.sh(t, "true")
	if left, err := os.ReadDir(filepath.Join(b.state, "docker-restored")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestBehindTheBack holds that states stay right when somebody uses the engine
// directly.
func TestBehindTheBack(t *testing.T) {
	b := boot(t, docker.Config{}, nil)
	cli := engine(t)
	b.sh(t, "echo kept >/f")
	saved := b.save(t)
	kill := func() {
		t.Helper()
		if _, err := cli.ContainerKill(t.Context(), b.container(t), client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
			t.Fatal(err)
		}
		if s, err := b.d.Wait(t.Context(), b.id); err != nil || s.State != driver.Stopped || s.Exit.Reason != "killed" {
			t.Errorf("killed: %+v, %v", s, err)
		}
	}
	kill()
	if err := b.d.Save(t.Context(), b.id, filepath.Join(t.TempDir(), "killed")); err != nil {
		t.Errorf("a killed sandbox cannot be saved: %v", err)
	}
	b.start(t)
	kill()
	b.restore(t, saved)
	b.start(t)
	b.sh(t, `[ "$(cat /f)" = kept ]`)

	if _, err := cli.ContainerRemove(t.Context(), b.container(t), client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if s, err := b.d.Inspect(t.Context(), b.id); err != nil || s.State != driver.Broken {
		t.Errorf("removed: %+v, %v", s, err)
	}
	for what, err := range map[string]error{
		"save":    b.d.Save(t.Context(), b.id, filepath.Join(t.TempDir(), "broken")),
		"restore": b.d.Restore(t.Context(), b.id, saved),
		"resize":  b.d.Resize(t.Context(), b.id, driver.Limits{}),
	} {
		if !fault.Is(err, fault.State) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := b.d.Remove(t.Context(), b.id); err != nil {
		t.Error(err)
	}
	if lines, err := b.d.Leftovers(t.Context(), false); err != nil || len(lines) > 0 {
		t.Errorf("leftovers: %q, %v", lines, err)
	}
}

// TestDialWhileSaved holds that the engine is never made to pause a container
// in which a relay is being started: it would not come back.
func TestDialWhileSaved(t *testing.T) {
	t.Run("kernel", func(t *testing.T) { dialWhileSaved(t, docker.Config{}, 5) })
	t.Run("engine", func(t *testing.T) { dialWhileSaved(t, docker.Config{Host: newFront(t, "tcp", "127.0.0.1:0").host}, 3) })
}

func dialWhileSaved(t *testing.T, cfg docker.Config, n int) {
	t.Helper()
	b := boot(t, cfg, nil)
	stop := make(chan struct{})
	var dialers sync.WaitGroup
	for range 4 {
		dialers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				stream, err := b.d.Dial(t.Context(), b.id)
				if err != nil {
					t.Error(err, errors.Unwrap(err))
					return
				}
				stream.Close() // before anybody knows whether the relay runs
			}
		})
	}
	for i := range n {
		if err := b.d.Save(t.Context(), b.id, filepath.Join(t.TempDir(), fmt.Sprint(i))); err != nil {
			t.Error(err, errors.Unwrap(err))
		}
	}
	close(stop)
	dialers.Wait()
	if err := b.conn.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
