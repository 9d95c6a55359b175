package sshgw

import (
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
)

// Who is detached reads what the session is called by now.
func TestComeBackToRenamedSession(t *testing.T) {
	g := newGateway(t)
	p := g.person(t, "box+aa@gw")
	p.shell()
	if _, err := g.alice().RenameSession(t.Context(), "sbx_alice", "aa", "bb"); err != nil {
		t.Fatal(err)
	}
	if err := g.alice().DetachSession(t.Context(), "sbx_alice", "bb"); err != nil {
		t.Fatal(err)
	}
	if status := p.ends(); status != 0 || !strings.Contains(p.out.String(), "detached: bb; come back with: ssh -t box+bb@gw\r\n") {
		t.Errorf("status %d, it shows %q", status, p.out.String())
	}
}

// Who asks for a user does not come to type as another one.
func TestComeBackAsAnotherUser(t *testing.T) {
	g := newGateway(t)
	p := g.person(t, "box+dev@gw")
	p.shell()
	other := g.person(t, "box+~nobody+dev@gw")
	if status := other.ends(); status != exitNotStarted || !strings.HasPrefix(other.out.String(), "sandgate: session \"dev\" runs as another; take it up with: ssh -t box+dev@gw\r\n") {
		t.Errorf("status %d, it shows %q", status, other.out.String())
	}
	same := g.person(t, "box+root+dev@gw")
	same.out.waitFor(t, "pid=")
	p.types("exit 4\r")
	for _, c := range []*person{p, same} {
		if status := c.ends(); status != 4 {
			t.Errorf("status %d, want 4; it shows %q", status, c.out.String())
		}
	}
}

// A client that comes without any input ends what it began, and nothing else.
func TestEndOfInputInSession(t *testing.T) {
	g := newGateway(t)
	p := g.person(t, "box+dev@gw")
	pid := p.shell()
	r := run(t, g.ssh("-tt", "box+dev@gw"), strings.NewReader(""))
	if r.status != 0 || !strings.Contains(r.stderr, "sandgate: left dev; it goes on\r\n") {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	if again := p.shell(); again != pid || g.only(t, sandbox.SessionAttached).Name != "dev" {
		t.Errorf("the shell is %d, was %d", again, pid)
	}
	p.types("exit\r")
	p.ends()
	r = run(t, g.ssh("-tt", "box+new@gw", "cat; echo en''ded; exit 6"), strings.NewReader("in\n"))
	if r.status != 6 || !strings.Contains(r.stdout, "ended") {
		t.Errorf("a new session: status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
}
