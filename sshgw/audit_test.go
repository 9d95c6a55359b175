package sshgw

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox"
)

// auditTrail collects audit records.
type auditTrail struct {
	mu  sync.Mutex
	all []sandbox.AuditRecord
}

func (a *auditTrail) option(c *Config) { c.Audit, c.AuditCommands = a.write, true }

func (a *auditTrail) write(r sandbox.AuditRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, r)
}

// of returns the records of a kind and of what they tell; "" is any.
func (a *auditTrail) of(kind sandbox.AuditKind, what string) []sandbox.AuditRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []sandbox.AuditRecord
	for _, r := range a.all {
		if (kind == "" || r.Kind == kind) && (what == "" || r.What == what) {
			out = append(out, r)
		}
	}
	return out
}

// one waits for a record and returns it.
func (a *auditTrail) one(t *testing.T, kind sandbox.AuditKind, what string) sandbox.AuditRecord {
	t.Helper()
	eventually(t, fmt.Sprintf("a record %q of %q", kind, what), func() bool { return len(a.of(kind, what)) > 0 })
	return a.of(kind, what)[0]
}

// Who, from where, with which key, what, where, how long, how much, how it
// ended: of a whole connection.
func TestAudit(t *testing.T) {
	trail := new(auditTrail)
	g := newGateway(t, trail.option)
	run(t, g.ssh("box@gw", "cat; echo e >&2; exit 7"), strings.NewReader("12345")).expect(t, 7, "12345")
	logout := trail.one(t, sandbox.AuditLogout, "")
	login, start, end := trail.one(t, sandbox.AuditLogin, ""), trail.one(t, sandbox.AuditStart, "exec"), trail.one(t, sandbox.AuditEnd, "exec")
	key := gossh.FingerprintSHA256(g.signer("alice").PublicKey())
	for _, r := range trail.of("", "") {
		if r.Principal != "alice" || r.Role != "member" || r.Key != key || r.User != "box" || r.Door != "ssh" || r.Connection != login.Connection ||
			!strings.HasPrefix(r.Remote, "127.0.0.1:") || !strings.HasPrefix(r.Client, "SSH-2.0-OpenSSH_") || r.Time.IsZero() {
			t.Errorf("%+v", r)
		}
	}
	if start.Sandbox != "sbx_alice" || start.Command != "cat; echo e >&2; exit 7" || start.Channel != 1 {
		t.Errorf("start %+v", start)
	}
	if end.Sandbox != "sbx_alice" || end.Exit == nil || *end.Exit != 7 || end.In != 5 || end.Out != 7 || end.Channel != 1 {
		t.Errorf("end %+v", end)
	}
	c, d := trail.one(t, sandbox.AuditConnect, ""), trail.one(t, sandbox.AuditDisconnect, "")
	if c.Sandbox != "sbx_alice" || d.Sandbox != "sbx_alice" || d.Sessions != 1 || d.Forwards != 0 || d.In != 5 || d.Out != 7 {
		t.Errorf("connect %+v, disconnect %+v", c, d)
	}
	if logout.In == 0 || logout.Out == 0 {
		t.Errorf("logout %+v", logout)
	}
	if got := trail.of("", ""); len(got) != 6 {
		t.Errorf("%d records: %+v", len(got), got)
	}
}

// Each kind of business has its record; what is refused says why.
func TestAuditKinds(t *testing.T) {
	trail := new(auditTrail)
	g := newGateway(t, trail.option)
	addr := sumServer(t)
	c := g.dial("box", "alice")
	if fc, err := c.Dial("tcp", addr); err != nil {
		t.Fatal(err)
	} else {
		_ = fc.Close()
	}
	if r := trail.one(t, sandbox.AuditEnd, "forward"); r.Target != addr || r.Sandbox != "sbx_alice" {
		t.Errorf("forward %+v", r)
	}
	if _, err := c.Dial("tcp", "127.0.0.1:1"); err == nil {
		t.Error("somebody listens on port 1")
	}
	if r := trail.one(t, sandbox.AuditRefused, "forward"); r.Target != "127.0.0.1:1" || r.Reason == "" {
		t.Errorf("refused forward %+v", r)
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestSubsystem(APISubsystem); err != nil {
		t.Fatal(err)
	}
	trail.one(t, sandbox.AuditStart, "api")
	_ = s.Close()
	trail.one(t, sandbox.AuditEnd, "api")
	if _, _, err := c.OpenChannel("x11", nil); err == nil {
		t.Error("x11 was opened")
	}
	if r := trail.one(t, sandbox.AuditRefused, "x11"); r.Reason == "" {
		t.Errorf("x11 %+v", r)
	}
	run(t, g.ssh("-n", "gw", "exit 3"), nil).expect(t, 3, "")
	if r := trail.one(t, sandbox.AuditEnd, "command"); r.Sandbox != "" || *r.Exit != 3 || r.Command != "exit 3" {
		t.Errorf("command %+v", r)
	}
	if run(t, g.ssh("-n", "sbx_none@gw", "true"), nil).status != 255 {
		t.Error("a sandbox that is not there was entered")
	}
	eventually(t, "its record", func() bool {
		return slices.ContainsFunc(trail.of(sandbox.AuditEnd, "exec"), func(r sandbox.AuditRecord) bool {
			return r.Sandbox == "sbx_none" && r.Reason != "" && *r.Exit == 255
		})
	})
	if run(t, g.sshAs("stranger", "-n", "box@gw", "true"), nil).status != 255 {
		t.Error("a stranger got in")
	}
	r := trail.one(t, sandbox.AuditRefused, "login")
	if r.Principal != "" || r.User != "box" || r.Key != gossh.FingerprintSHA256(g.signer("stranger").PublicKey()) || !strings.Contains(r.Reason, "not registered") {
		t.Errorf("stranger %+v", r)
	}
}

// The user name of somebody who is turned away is bounded, and looks like no
// other line.
func TestAuditRefusedUser(t *testing.T) {
	trail := new(auditTrail)
	g := newGateway(t, trail.option)
	user := "x\n{\"kind\":\"login\"}\x1b[2J" + strings.Repeat("y", 1000)
	if _, err := gossh.Dial("tcp", g.addr.String(), g.clientConfig(user, "stranger")); err == nil {
		t.Fatal("a stranger got in")
	}
	r := trail.one(t, sandbox.AuditRefused, "login")
	if !strings.HasPrefix(r.User, `x\n{"kind":"login"}\x1b[2Jyyy`) || len(r.User) > maxAuditWord+10 || r.Key != gossh.FingerprintSHA256(g.signer("stranger").PublicKey()) {
		t.Errorf("told %+v", r)
	}
}

// A jump is told on both connections, and a session by its name.
func TestAuditJumpAndSession(t *testing.T) {
	trail := new(auditTrail)
	g := newGateway(t, trail.option)
	nc, err := g.dial("gw", "alice").Dial("tcp", "sbx_alice:22")
	if err != nil {
		t.Fatal(err)
	}
	sc, chans, reqs, err := gossh.NewClientConn(nc, "sbx_alice", g.clientConfig("me", "alice"))
	if err != nil {
		t.Fatal(err)
	}
	inner := gossh.NewClient(sc, chans, reqs)
	s, err := inner.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.Output("echo in"); err != nil || string(out) != "in\n" {
		t.Fatalf("%q, %v", out, err)
	}
	_ = inner.Close()
	jump := trail.one(t, sandbox.AuditEnd, "jump")
	if jump.Target != "sbx_alice:22" {
		t.Errorf("jump %+v", jump)
	}
	exec := trail.one(t, sandbox.AuditEnd, "exec")
	if exec.Sandbox != "sbx_alice" || exec.Connection == jump.Connection {
		t.Errorf("exec %+v, jump %+v", exec, jump)
	}
	for _, r := range trail.of(sandbox.AuditLogin, "") {
		if r.Connection == exec.Connection && r.Target != "jump:"+jump.Connection {
			t.Errorf("login %+v", r)
		}
	}
	cmd := g.ssh("-tt", "box+dev@gw")
	cmd.Stdin = strings.NewReader("exit 4\n")
	if r := run(t, cmd, cmd.Stdin); r.status != 4 {
		t.Errorf("status %d, %q, %q", r.status, r.stdout, r.stderr)
	}
	if r := trail.one(t, sandbox.AuditEnd, "shell"); r.Session != "dev" || !r.TTY || *r.Exit != 4 {
		t.Errorf("shell %+v", r)
	}
}

// The text of commands is kept only where that is asked for.
func TestAuditWithoutCommands(t *testing.T) {
	trail := new(auditTrail)
	g := newGateway(t, trail.option, func(c *Config) { c.AuditCommands = false })
	run(t, g.ssh("-n", "box@gw", "echo secret"), nil).expect(t, 0, "secret\n")
	trail.one(t, sandbox.AuditEnd, "exec")
	if b, _ := json.Marshal(trail.of("", "")); strings.Contains(string(b), "secret") {
		t.Errorf("%s", b)
	}
}

// hostile are names that want to be more than that.
var hostile = []string{
	"a\x1b]0;x\a\nlevel=ERROR msg=forged", "a\r\n{\"kind\":\"login\",\"principal\":\"root\"}", "\xff\xfe\x00\x80", "\u202etxt.exe\u2066", "\u2028\u2029\u0085\u009b31m",
	strings.Repeat("A", 200000), strings.Repeat("\x1b[2J", 50000), "`$(reboot)`", "a=\"b\" c=d",
}

// P28: nothing that a client sends makes a line of the log or of the audit log
// look like another one, or steers a terminal that shows it.
func TestP28LogInjection(t *testing.T) {
	trail := new(auditTrail)
	g := newGateway(t, trail.option)
	for _, evil := range hostile {
		for _, key := range []string{"alice", "stranger"} {
			cfg := g.clientConfig(evil, key)
			cfg.ClientVersion = "SSH-2.0-" + strings.Map(func(r rune) rune {
				if r < ' ' || r > '~' {
					return '?' // the library's own client sends nothing else
				}
				return r
			}, evil[:min(len(evil), 100)])
			c, err := gossh.Dial("tcp", g.addr.String(), cfg)
			if err != nil {
				continue
			}
			if s, err := c.NewSession(); err == nil {
				_ = s.Setenv("LC_"+evil, evil)
				_ = s.Setenv("LC_X", evil)
				_ = s.RequestPty(evil, 1, 1, nil)
				_, _ = s.CombinedOutput("args " + evil)
			}
			if s, err := c.NewSession(); err == nil {
				_ = s.RequestSubsystem(evil)
				_ = s.Close()
			}
			_, _, _ = c.OpenChannel(evil[:min(len(evil), 1000)], []byte(evil))
			_, _, _ = c.OpenChannel("direct-tcpip", gossh.Marshal(struct {
				Host string
				Port uint32
				From string
				Org  uint32
			}{evil, 80, evil, 1}))
			_, _, _ = c.SendRequest(evil[:min(len(evil), 1000)], true, []byte(evil))
			_ = c.Close()
		}
		// What the client says before anything else.
		if nc, err := net.Dial("tcp", g.addr.String()); err == nil {
			_, _ = nc.Write([]byte("SSH-2.0-" + evil + "\r\n"))
			_ = nc.Close()
		}
	}
	g.stop()
	<-g.stopped
	for line := range strings.Lines(g.log.String()) {
		if strings.HasPrefix(line, "time=") && len(line) < 4096 && !strings.ContainsFunc(strings.TrimSuffix(line, "\n"), unprintable) {
			continue
		}
		t.Errorf("a line of the log: %.200q", line)
	}
	all := trail.of("", "")
	if len(all) < 2*len(hostile) {
		t.Fatalf("%d records", len(all))
	}
	for _, r := range all {
		b, err := json.Marshal(r)
		if err != nil || len(b) > 4096 || strings.ContainsFunc(string(b), unprintable) {
			t.Errorf("%v, %.300q", err, b)
		}
		if r.Principal != "" && r.Principal != "alice" {
			t.Errorf("somebody is %q", r.Principal)
		}
	}
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }

// P28: whatever it is made of, text is printable and bounded, and different
// texts that fit look different.
func FuzzAuditText(f *testing.F) {
	for _, s := range hostile {
		f.Add(s[:min(len(s), 2000)], "a")
	}
	f.Add(`a\nb`, "a\nb")
	f.Fuzz(func(t *testing.T, a, b string) {
		const most = 100
		x, y := auditText(a, most), auditText(b, most)
		if strings.ContainsFunc(x, unprintable) || !utf8.ValidString(x) || len(x) > most+16 {
			t.Errorf("%q became %q", a, x)
		}
		if a != b && x == y && !strings.HasSuffix(x, "…") {
			t.Errorf("%q and %q look the same: %q", a, b, x)
		}
	})
}
