package cli

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

const onePublicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIqIKx0/YAhnsL1ZLHRRY8sZ8RclU0k9mrxr5uVdWk0P"

func TestKey(t *testing.T) {
	c := newTerminalless(t)
	r := c.run(strings.NewReader("# mine\n"+onePublicKey+" me@home\nnonsense\n"), nil, "key", "add", "-", "--principal", "bob", "--expires", "30d")
	if r.code != 0 || !strings.Contains(r.stdout, "for bob (member)") || !strings.Contains(r.stderr, "line 3") {
		t.Fatalf("key add: %+v", r)
	}
	fingerprint := strings.Fields(r.stdout)[1]
	if out := c.ok("key", "list"); !strings.Contains(out, fingerprint) || !strings.Contains(out, "in 29d") || !strings.Contains(out, "never") {
		t.Errorf("key list printed %q", out)
	}
	if r := c.run(strings.NewReader(onePublicKey), nil, "key", "add", "-"); r.code != 1 || !strings.Contains(r.stderr, "registered") {
		t.Errorf("again: %+v", r)
	}
	c.ok("key", "delete", fingerprint)

	github := func(e *Env) {
		e.HTTP = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.String() != "https://github.com/octocat.keys" {
				return nil, errors.New("unexpected " + r.URL.String())
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(onePublicKey + "\n")), Request: r}, nil
		})}
	}
	if r := c.run(nil, github, "key", "add", "github:octocat", "--json"); r.code != 0 || !strings.Contains(r.stdout, fingerprint) || !strings.Contains(r.stdout, `"principal": "alice"`) {
		t.Errorf("github: %+v", r)
	}

	private := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(private, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := c.run(nil, func(e *Env) { e.Local = true }, "key", "add", private); r.code != 2 || !strings.Contains(r.stderr, "private key") {
		t.Errorf("private key: %+v", r)
	}

	r = c.run(nil, nil, "key", "api", "create", "--name", "ci")
	if secret := strings.TrimSpace(r.stdout); r.code != 0 || !strings.HasPrefix(secret, "sgk_") || strings.Contains(r.stderr, secret) {
		t.Errorf("key api create: %+v", r)
	}
	if out := c.ok("key", "api", "list", "--json"); !strings.Contains(out, `"name": "ci"`) || strings.Contains(out, "sgk_") {
		t.Errorf("key api list printed %q", out)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestSSHShow(t *testing.T) {
	c := newTerminalless(t)
	if out := c.ok("ssh", "dev", "ls -la"); out != "ssh -p 2222 -- dev@gateway 'ls -la'\n" {
		t.Errorf("over ssh: %q", out)
	}
	if r := c.run(nil, func(e *Env) { e.Gateway = "gw.example:22" }, "ssh", "dev"); r.stdout != "ssh -- dev@gw.example\n" {
		t.Errorf("over ssh: %+v", r)
	}
	if r := c.run(nil, func(e *Env) { e.Local = true }, "ssh", "dev", "--show"); r.stdout != "ssh -p 2222 -- dev@127.0.0.1\n" {
		t.Errorf("on this machine: %+v", r)
	}
}

// Every command explains itself with an example, and none shadows another.
func TestHelp(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s: no short text or no example", cmd.CommandPath())
		}
		names := map[string]bool{}
		for _, sub := range cmd.Commands() {
			for _, name := range append([]string{sub.Name()}, sub.Aliases...) {
				if names[name] {
					t.Errorf("%s %s: two commands", cmd.CommandPath(), name)
				}
				names[name] = true
			}
			visit(sub)
		}
		if cmd.Runnable() && !cmd.HasSubCommands() && cmd.Flags().Lookup("json") == nil && cmd.Name() != "serve" {
			t.Errorf("%s: no --json", cmd.CommandPath())
		}
	}
	visit(newRoot(Env{Local: true}, newServeCommand(), newStopCommand(), newDemoCommand(), newDoctorCommand()))
	c := newTerminalless(t)
	for _, args := range [][]string{{}, {"--help"}, {"help", "create"}, {"key"}, {"sb"}, {"run", "--help"}} {
		if out := c.ok(args...); !strings.Contains(out, "sandgate") || !strings.Contains(out, "Usage:") {
			t.Errorf("%q printed %q", args, out)
		}
	}
}

func TestRememberHostKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "client")
	path, err := rememberHostKeys(dir, "127.0.0.1:2222", []string{onePublicKey})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rememberHostKeys(dir, "gw.example:22", []string{onePublicKey}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing changes
		if _, err := rememberHostKeys(dir, "127.0.0.1:2222", []string{onePublicKey}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if want := "gw.example " + onePublicKey + "\n[127.0.0.1]:2222 " + onePublicKey + "\n"; err != nil || string(got) != want {
		t.Errorf("known_hosts: %q, %v; want %q", got, err, want)
	}
	if _, err := rememberHostKeys(dir, "gw.example:22", []string{"nonsense"}); err == nil {
		t.Error("nonsense was taken as a host key")
	}
}

func TestAge(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	a := &app{Env: Env{Now: func() time.Time { return now }}}
	for d, want := range map[time.Duration]string{
		0: "now", 61 * time.Second: "1m ago", 25 * time.Hour: "25h ago", 49 * time.Hour: "2d ago", 59 * time.Second: "59s ago",
		-90 * time.Minute: "in 1h", 400 * 24 * time.Hour: "400d ago",
	} {
		if got := a.age(now.Add(-d)); got != want {
			t.Errorf("age of %s: %q, want %q", d, got, want)
		}
	}
	if got := a.age(time.Time{}); got != "never" {
		t.Errorf("age of nothing: %q", got)
	}
}
