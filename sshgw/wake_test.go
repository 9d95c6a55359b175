package sshgw

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func paused(since time.Time) sandbox.Sandbox {
	return sandbox.Sandbox{ID: "sbx_alice", Name: "box", Status: sandbox.Paused, PausedAt: since}
}

// A person sees why nothing happens, and how long it took; the line is whole
// before anything else is shown.
func TestWakeOnTerminal(t *testing.T) {
	g := newGateway(t)
	for _, c := range []struct {
		state sandbox.Sandbox
		args  []string
		want  string
	}{
		{paused(time.Now().Add(-3*time.Hour - time.Minute)), []string{"box@gw", "echo in"}, `^sandgate: resuming sbx_alice \(paused 3h\) … done in \d+\.\d s\r\nin\r\n`},
		{paused(time.Now().Add(-100 * time.Hour)), []string{"box+dev@gw", "echo in"}, `^sandgate: resuming sbx_alice \(paused 4d\) … done in \d+\.\d s\r\nin\r\n`},
		{sandbox.Sandbox{ID: "sbx_alice", Status: sandbox.Creating}, []string{"sbx_alice@gw", "echo in"}, `^sandgate: waiting for sbx_alice, which is being created … done in \d+\.\d s\r\nin\r\n`},
		{sandbox.Sandbox{ID: "sbx_alice", Status: sandbox.Suspended}, []string{"box@gw", "echo in"}, `^sandgate: starting sbx_alice again … done in \d+\.\d s\r\nin\r\n`},
		{sandbox.Sandbox{ID: "sbx_alice", Status: sandbox.Idle}, []string{"box@gw", "echo in"}, `^in\r\n`},
	} {
		up := make(chan struct{})
		g.boxes.asleep(c.state, func() { <-up }, nil)
		p := g.person(t, c.args...)
		if c.state.Status != sandbox.Idle {
			p.out.waitFor(t, " …") // while it is still down
		}
		close(up)
		if status := p.ends(); status != 0 || !regexp.MustCompile(c.want).MatchString(p.out.String()) {
			t.Errorf("%s: status %d, it shows %q", c.state.Status, status, p.out.String())
		}
	}
}

// A program's standard error stays as it is, unless it takes long; then there
// is one plain line. Standard output never has a byte too many.
func TestWakeWithoutTerminal(t *testing.T) {
	g := newGateway(t)
	up := make(chan struct{})
	g.boxes.asleep(paused(time.Now().Add(-time.Hour)), func() { <-up }, nil)
	cmd := g.ssh("-n", "box@gw", "echo in")
	out, errs := new(syncBuffer), new(syncBuffer)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	errs.waitFor(t, "\n")
	close(up)
	r := finish(t, cmd, out, errs)
	r.expect(t, 0, "in\n")
	if want := "sandgate: resuming sbx_alice (paused 60m)\n"; r.stderr != want {
		t.Errorf("stderr %q, want %q", r.stderr, want)
	}
	g.boxes.asleep(paused(time.Now()), func() {}, nil)
	r = run(t, g.ssh("-n", "box@gw", "echo in"), nil)
	if r.expect(t, 0, "in\n"); r.stderr != "" {
		t.Errorf("a quick start was told: %q", r.stderr)
	}
}

// What cannot be woken says so in one line.
func TestWakeRefused(t *testing.T) {
	g := newGateway(t)
	refusal := fault.New(fault.State, "sandbox sbx_alice is terminated (it was idle); make a new one with: create")
	g.boxes.asleep(sandbox.Sandbox{ID: "sbx_alice", Status: sandbox.Terminated}, nil, refusal)
	for _, args := range [][]string{{"-n", "box@gw", "true"}, {"-tt", "box@gw"}, {"-tt", "box+dev@gw"}} {
		r := run(t, g.ssh(args...), strings.NewReader(""))
		said := strings.TrimRight(r.stderr, "\r\n")
		if r.status != exitNotStarted || r.stdout != "" || said != "sandgate: "+refusal.Message && !strings.HasPrefix(said, "sandgate: "+refusal.Message+"\r\nConnection to") {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, r.status, r.stdout, r.stderr)
		}
	}
	// A line that was begun ends before the reason.
	g.boxes.asleep(paused(time.Now()), nil, fault.New(fault.Unavailable, "its memory cannot be read"))
	r := run(t, g.ssh("-tt", "box@gw"), strings.NewReader(""))
	if want := "sandgate: resuming sbx_alice (paused a moment) …\r\nsandgate: its memory cannot be read\r\n"; r.status != exitNotStarted || !strings.HasPrefix(r.stderr, want) {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "a moment", 0: "a moment", 59 * time.Second: "59s", 2 * time.Minute: "2m", 119 * time.Minute: "119m",
		2 * time.Hour: "2h", 47 * time.Hour: "47h", 48 * time.Hour: "2d",
	} {
		if got := ago(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
