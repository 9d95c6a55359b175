package guest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

func TestHangup(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		tty    bool
		want   func(guest.Exit) bool
	}{
		"pipes":             {"echo ready; sleep 1000", false, func(e guest.Exit) bool { return e.Signal == "HUP" }},
		"pipes, caught":     {"trap 'exit 3' HUP; echo ready; while :; do sleep 0.01; done", false, func(e guest.Exit) bool { return e.Code == 3 }},
		"pipes, ignored":    {"trap '' HUP; echo ready; while :; do sleep 0.01; done", false, func(e guest.Exit) bool { return e.Signal == "KILL" }},
		"pipes, stopped":    {"echo ready; kill -STOP $$", false, func(e guest.Exit) bool { return e.Signal == "HUP" }},
		"terminal":          {"echo ready; sleep 1000", true, func(e guest.Exit) bool { return e.Signal == "HUP" }},
		"terminal, ignored": {"trap '' HUP; echo ready; while :; do sleep 0.01; done", true, func(e guest.Exit) bool { return e.Signal == "KILL" }},
		"survivor holds":    {"setsid sh -c 'trap \"\" HUP; echo ready; while [ -e alive ]; do sleep 0.01; done' & sleep 1000", false, func(e guest.Exit) bool { return e.Signal == "HUP" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, func(c *agent.Config) { c.HangupGrace = 300 * time.Millisecond })
			c := s.connect(t)
			alive := filepath.Join(s.workspace, "alive")
			if err := os.WriteFile(alive, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(alive)
			cmd := guest.Command{ID: "x", Script: tc.script}
			if tc.tty {
				cmd.TTY = &guest.TTY{}
			}
			p, w := start(t, c, cmd)
			w.waitFor(t, "ready")
			if err := p.Hangup(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if exit := wait(t, p); !tc.want(exit) {
				t.Errorf("%+v", exit)
			}
		})
	}
}

// What made itself a session of its own outlives a hangup and the grace.
func TestHangupSparesSessions(t *testing.T) {
	s := newSandbox(t, func(c *agent.Config) { c.HangupGrace = 50 * time.Millisecond })
	c := s.connect(t)
	p, w := start(t, c, guest.Command{ID: "x", Script: "setsid sh -c 'echo survivor $$; while [ ! -e end ]; do sleep 0.01; done; echo > ended' & sleep 1000"})
	w.waitFor(t, "survivor")
	if err := p.Hangup(testContext(t)); err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	if err := os.WriteFile(filepath.Join(s.workspace, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for ctx := testContext(t); ; {
		if _, err := os.Stat(filepath.Join(s.workspace, "ended")); err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("it was killed with the others")
		}
	}
}

func TestShutdownEndsProcesses(t *testing.T) {
	s := newSandbox(t, func(c *agent.Config) { c.ShutdownGrace = 200 * time.Millisecond })
	c := s.connect(t)
	pids := make(map[string]int)
	for id, cmd := range map[string]guest.Command{
		"gentle":   {Script: "echo ready; sleep 1000"},
		"stubborn": {Script: "trap '' TERM HUP; echo ready; while :; do sleep 0.01; done"},
		"shell":    {Args: []string{"bash", "--norc", "-i"}, TTY: &guest.TTY{}, Env: []string{"PS1=ready"}},
	} {
		cmd.ID = id
		p, w := start(t, c, cmd)
		w.waitFor(t, "ready")
		pids[id] = p.PID()
	}
	if err := c.Shutdown(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for id, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("%s is alive", id)
		}
	}
	if _, err := c.Start(testContext(t), guest.Command{ID: "late"}, guest.Output{}); !errors.Is(err, guest.ErrLost) {
		t.Errorf("start after the end: %v", err)
	}
}
