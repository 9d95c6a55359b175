package sshgw

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// recheck is what the Engine's does: the key must still be registered, for the
// same principal.
func (g *gateway) recheck(_ context.Context, p keys.Principal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.users[p.KeyID]; now.ID != p.ID || now.Role != p.Role {
		return fault.New(fault.Denied, "this key is not registered any more")
	}
	return nil
}

// unregister removes the key of a user.
func (g *gateway) unregister(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.users, gossh.FingerprintSHA256(g.signer(key).PublicKey()))
}

// master starts an OpenSSH master connection and returns how to run commands
// on it, and a channel that is closed when it has ended.
func (g *gateway) master(t *testing.T, dest string) (mux func(args ...string) result, errs *syncBuffer, ended <-chan struct{}) {
	t.Helper()
	control := "ControlPath=" + filepath.Join(g.dir, "mux")
	cmd := g.ssh("-M", "-N", "-o", control, dest)
	errs = new(syncBuffer)
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	mux = func(args ...string) result {
		return run(t, g.muxOnly(control, args...), nil)
	}
	eventually(t, "the master", func() bool { return mux("-O", "check", dest).status == 0 })
	return mux, errs, done
}

// muxOnly is a client that uses the master, and opens no connection of its own
// when that is gone.
func (g *gateway) muxOnly(control string, args ...string) *exec.Cmd {
	return g.ssh(append([]string{"-n", "-o", control, "-o", "ControlMaster=no", "-o", "ProxyCommand=false"}, args...)...)
}

// A key that is removed opens no more channels of a connection it opened, and
// the connection ends.
func TestRemovedKeyEndsMaster(t *testing.T) {
	g := newGateway(t)
	mux, errs, ended := g.master(t, "box@gw")
	mux("box@gw", "echo in").expect(t, 0, "in\n")
	g.unregister("alice")
	touched := filepath.Join(g.dir, "touched")
	r := mux("box@gw", "touch "+touched)
	if r.status != 255 || r.stdout != "" {
		t.Errorf("after the removal: status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	if said := r.stderr + errs.String(); !strings.Contains(said, "sandgate: this key is not registered any more") {
		t.Errorf("the reason was not said: %q", said)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the master goes on")
	}
	if matches, _ := filepath.Glob(touched); len(matches) != 0 {
		t.Error("the command was run")
	}
}

// It holds for each kind of channel, and for sessions that were opened before.
func TestRemovedKeyIsRefused(t *testing.T) {
	addr := sumServer(t)
	for name, use := range map[string]func(c *gossh.Client, opened *gossh.Session) error{
		"session": func(c *gossh.Client, _ *gossh.Session) error {
			_, err := c.NewSession()
			return err
		},
		"forward": func(c *gossh.Client, _ *gossh.Session) error {
			_, err := c.Dial("tcp", addr)
			return err
		},
		"command on an open session": func(_ *gossh.Client, s *gossh.Session) error {
			out, err := s.CombinedOutput("echo in")
			if strings.Contains(string(out), "in\n") {
				return nil
			}
			return err
		},
		"api on an open session": func(_ *gossh.Client, s *gossh.Session) error {
			out := new(syncBuffer)
			s.Stdout = out
			if err := s.RequestSubsystem(APISubsystem); err != nil {
				return err
			}
			_ = s.Wait()
			if out.String() == "" {
				return net.ErrClosed
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			c := g.dial("box", "alice")
			s, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			g.unregister("alice")
			err = use(c, s)
			if err == nil {
				t.Fatal("it was served")
			}
			if open, ok := errors.AsType[*gossh.OpenChannelError](err); ok &&
				(open.Reason != gossh.Prohibited || open.Message != "sandgate: this key is not registered any more") {
				t.Errorf("refused with %v", open)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = c.Wait()
			}()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("the connection goes on")
			}
		})
	}
}

// When the key expires is known wherever the principal goes.
func TestPermissionsCarryPrincipal(t *testing.T) {
	for _, expires := range []time.Time{{}, time.Date(2027, 1, 31, 1, 2, 3, 456, time.UTC)} {
		want := keys.Principal{
			ID: "alice", Role: keys.Admin, KeyID: "SHA256:x", Door: "ssh", Expires: expires,
			Scope: keys.Scope{Sandboxes: []string{"dev"}, Verbs: []keys.Verb{keys.Shell}},
		}
		if got, ok := principalOf(permissions(want)); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, ok, want)
		}
	}
	for _, perms := range []*gossh.Permissions{nil, {}, permissions(keys.Principal{})} {
		if p, ok := principalOf(perms); ok {
			t.Errorf("%v gave %+v", perms, p)
		}
	}
}

// The command tree knows by what name it was reached, and whether that may have
// been meant for a sandbox.
func TestFallback(t *testing.T) {
	g := newGateway(t)
	for user, want := range map[string]string{
		"gone": `"gone" true`, "alice": `"alice" false`, "sandgate": `"sandgate" false`, "control": `"control" true`,
		"a b\x1b[2J": `"a b?[2J" true`,
	} {
		s, err := g.dial(user, "alice").NewSession()
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Output("user")
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("user %q: got %s, %v; want %s", user, got, err, want)
		}
	}
}
