package sshgw

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// invitations are codes that register keys with a gateway under test.
type invitations struct {
	mu    sync.Mutex
	codes map[string]string // to principals; used up when they have been used
	tried int
	g     *gateway
}

// tries is how often a code was tried, and left whether a code is still good.
func (in *invitations) tries() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.tried
}

func (in *invitations) left(code string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.codes[code] != ""
}

// newJoinGateway is a gateway with the invitation "sgi_good" for carol.
func newJoinGateway(t *testing.T) (*gateway, *invitations) {
	t.Helper()
	in := &invitations{codes: map[string]string{"sgi_good": "carol"}}
	g := newGateway(t, func(c *Config) {
		c.Join = func(_ context.Context, code string, k keys.Key) (keys.Key, error) {
			in.mu.Lock()
			defer in.mu.Unlock()
			in.tried++
			who := in.codes[strings.TrimSpace(code)]
			if who == "" {
				return keys.Key{}, fault.New(fault.Denied, "this code is not good")
			}
			delete(in.codes, strings.TrimSpace(code))
			pub, _, _, _, err := gossh.ParseAuthorizedKey([]byte(k.PublicKey))
			if err != nil {
				return keys.Key{}, err
			}
			in.g.register(pub, keys.Principal{ID: who, Role: keys.Member})
			k.Principal, k.Role = who, keys.Member
			return k, nil
		}
	})
	in.mu.Lock()
	defer in.mu.Unlock()
	in.g = g
	return g, in
}

func TestJoin(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		stdin string
	}{
		"argument":     {[]string{"-n", "join@gw", "sgi_good"}, ""},
		"first line":   {[]string{"-T", "join@gw"}, "sgi_good\nmore\n"},
		"without end":  {[]string{"-T", "join@gw"}, "sgi_good"},
		"typed":        {[]string{"-tt", "join@gw"}, "sgi_gooe\x7fd\r"},
		"second try":   {[]string{"-tt", "join@gw"}, "nonsense\rsgi_good\r"},
		"typed over":   {[]string{"-tt", "join@gw"}, "nonsense\x15sgi_good\n"},
		"two of three": {[]string{"-tt", "join@gw"}, "a\rb\rsgi_good\r"},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := newJoinGateway(t)
			// The banner leads here.
			r := run(t, g.sshAs("stranger", "gw", "whoami"), nil)
			if r.status != 255 || !strings.Contains(r.stderr, "ssh join@") {
				t.Errorf("before: %+v", r)
			}
			in, feed := io.Pipe() // open after the last byte, as a terminal is
			defer feed.Close()
			go func() {
				_, _ = io.WriteString(feed, c.stdin)
				if !strings.Contains(strings.Join(c.args, " "), "-tt") {
					_ = feed.Close()
				}
			}()
			cmd := g.sshAs("stranger", c.args...)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = io.Copy(stdin, in)
				_ = stdin.Close()
			}()
			out, errs := &syncBuffer{}, &syncBuffer{}
			cmd.Stdout, cmd.Stderr = out, errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r = finish(t, cmd, out, errs)
			if r.status != 0 || !strings.Contains(r.stderr, "is registered: you are carol (member). Type: ssh gateway") || strings.Contains(r.stdout, "sgi_") {
				t.Errorf("join: %+v", r)
			}
			run(t, g.sshAs("stranger", "gw", "whoami"), nil).expect(t, 0, "carol member ssh\n")
			// Who is registered is told so, and no code is used.
			r = run(t, g.sshAs("stranger", "join@gw"), strings.NewReader("sgi_good\n"))
			if r.status != 0 || !strings.Contains(r.stderr, "registered already: you are carol (member)") {
				t.Errorf("again: %+v", r)
			}
		})
	}
}

// A code that is no good has one answer, three tries on a terminal and one
// without, and not many in a minute.
func TestJoinRefused(t *testing.T) {
	g, in := newJoinGateway(t)
	r := run(t, g.sshAs("stranger", "-T", "join@gw"), strings.NewReader("sgi_bad\nsgi_good\n"))
	if r.status != 255 || !strings.Contains(r.stderr, "sandgate: this code is not good\n") || in.tries() != 1 {
		t.Errorf("one try: %+v, tried %d", r, in.tries())
	}
	for name, stdin := range map[string]string{"nothing": "", "an empty line": "\n"} {
		if r := run(t, g.sshAs("stranger", "-T", "join@gw"), strings.NewReader(stdin)); r.status != 255 || !strings.Contains(r.stderr, "no code was given") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	c := g.dial(joinUser, "stranger")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestPty("xterm", 24, 80, nil); err != nil {
		t.Fatal(err)
	}
	s.Stdin = strings.NewReader("a\rb\rc\rsgi_good\r")
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	if got := exitStatus(t, s.Wait()); got != 255 || in.tries() != 4 {
		t.Errorf("on a terminal: status %d, tried %d", got, in.tries())
	}
	for range 20 {
		if r = run(t, g.sshAs("stranger", "-n", "join@gw", "sgi_bad"), nil); strings.Contains(r.stderr, "too many codes") {
			break
		}
	}
	if !strings.Contains(r.stderr, "too many codes were tried; wait a minute") {
		t.Errorf("no limit: %+v", r)
	}
}

// A connection that joins is for one session and nothing else, and registers
// the key that was proven alone.
func TestJoinIsNothingElse(t *testing.T) {
	g, in := newJoinGateway(t)
	for _, key := range []string{"stranger", "alice"} {
		for kind, payload := range map[string][]byte{
			"direct-tcpip": gossh.Marshal(struct {
				Host  string
				Port  uint32
				From  string
				FPort uint32
			}{"sbx_alice", 22, "x", 1}),
			"direct-streamlocal@openssh.com": nil, "x11": nil,
		} {
			c := g.dial(joinUser, key)
			if _, _, err := c.OpenChannel(kind, payload); err == nil {
				t.Errorf("%s: a channel of kind %s was opened", key, kind)
			}
			_ = c.Close()
		}
		c := g.dial(joinUser, key)
		if ok, _, _ := c.SendRequest("tcpip-forward", true, gossh.Marshal(struct {
			Host string
			Port uint32
		}{"", 0})); ok {
			t.Errorf("%s: it listens", key)
		}
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		for _, sub := range []string{"sftp", APISubsystem} {
			if err := s.RequestSubsystem(sub); err == nil {
				t.Errorf("%s: subsystem %s", key, sub)
			}
		}
		if _, err := c.NewSession(); err == nil {
			t.Errorf("%s: a second session", key)
		}
		_ = c.Close()
	}
	// bob's public half is offered first, and cannot be proven.
	pub := g.write("offered.pub", string(gossh.MarshalAuthorizedKey(g.newKey("other"))))
	r := run(t, g.sshAs(filepath.Base(pub), "-i", filepath.Join(g.dir, "stranger"), "-n", "join@gw", "sgi_good"), nil)
	if r.status != 0 || in.left("sgi_good") {
		t.Errorf("join: %+v", r)
	}
	run(t, g.sshAs("stranger", "gw", "whoami"), nil).expect(t, 0, "carol member ssh\n")
	run(t, g.sshAs("other", "gw", "whoami"), nil).expect(t, 255, "")
}

// Without invitations the user name is like any other.
func TestJoinIsOff(t *testing.T) {
	g := newGateway(t)
	run(t, g.sshAs("stranger", "join@gw", "x"), nil).expect(t, 255, "")
	run(t, g.sshAs("alice", "join@gw", "whoami"), nil).expect(t, 0, "alice member ssh\n")
}

func TestJoinLimit(t *testing.T) {
	var l joinLimit
	now := time.Now()
	for range joinBurst {
		if !l.take(nil, now) {
			t.Fatal("refused too early")
		}
	}
	if l.take(nil, now) || !l.take(nil, now.Add(joinEvery)) || l.take(nil, now.Add(joinEvery)) {
		t.Error("the limit of one address does not hold")
	}
}

func FuzzJoinInput(f *testing.F) {
	f.Add([]byte("sgi_good\r"), true)
	f.Add([]byte("\x7f\x7f\x15\x03"), true)
	f.Add([]byte("a\nb"), false)
	f.Fuzz(func(t *testing.T, typed []byte, tty bool) {
		code, err := readCode(bytes.NewReader(typed), tty)
		if err == nil && (len(code) > maxCode || strings.ContainsAny(code, "\r\n")) {
			t.Errorf("took %q", code)
		}
	})
}
