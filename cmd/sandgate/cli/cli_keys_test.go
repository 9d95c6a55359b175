package cli

import (
	"strings"
	"testing"
)

func TestKeyScope(t *testing.T) {
	c := newTerminalless(t)
	r := c.run(strings.NewReader(onePublicKey), nil, "key", "add", "-", "--principal", "ci", "--sandbox", "dev,sbx_aaaaaaaaaaaa", "--verbs", "files,exec", "--no-forwarding")
	if r.code != 0 {
		t.Fatalf("key add: %+v", r)
	}
	if out := c.ok("key", "list"); !strings.Contains(out, "sandbox=dev,sbx_aaaaaaaaaaaa verbs=exec,files no-forwarding") {
		t.Errorf("key list printed %q", out)
	}
	c.ok("key", "api", "create", "--project", "web")
	if out := c.ok("key", "api", "list"); !strings.Contains(out, "project=web") {
		t.Errorf("key api list printed %q", out)
	}
	for _, m := range []struct{ flag, value, says string }{
		{"--verbs", "fly", "--verbs: \"fly\" is not a verb: use shell,exec,"},
		{"--sandbox", "../x", "--sandbox: "},
		{"--project", "a b", "--project: "},
	} {
		if r := c.run(strings.NewReader(onePublicKey), nil, "key", "add", "-", m.flag, m.value); r.code != 2 || !strings.Contains(r.stderr, m.says) {
			t.Errorf("%s %s: %+v", m.flag, m.value, r)
		}
	}
	if r := c.run(strings.NewReader(onePublicKey), nil, "key", "add", "-", "--no-touch-required"); r.code != 2 || !strings.Contains(r.stderr, "security key") {
		t.Errorf("--no-touch-required: %+v", r)
	}
}

func TestKeyInvite(t *testing.T) {
	c := newTerminalless(t)
	r := c.run(nil, nil, "key", "invite", "--principal", "bob", "--verbs", "shell", "--uses", "2")
	if code := strings.TrimSpace(r.stdout); r.code != 0 || !strings.HasPrefix(code, "sgi_") || len(code) != 30 || !strings.Contains(r.stderr, "ssh -p 2222 join@gateway") {
		t.Fatalf("key invite: %+v", r)
	}
	out := c.ok("key", "invite", "list")
	if !strings.Contains(out, "bob") || !strings.Contains(out, "0/2") || strings.Contains(out, "sgi_") || !strings.Contains(out, "verbs=shell") {
		t.Errorf("key invite list printed %q", out)
	}
	id := strings.Fields(strings.Split(out, "\n")[1])[0]
	c.ok("key", "invite", "revoke", id)
	if r := c.run(nil, nil, "key", "invite", "revoke", id); r.code != 1 || !strings.Contains(r.stderr, id) {
		t.Errorf("again: %+v", r)
	}
	for _, args := range [][]string{{"--uses", "0"}, {"--expires", "yesterday"}, {"--key-expires", "2001-01-01"}, {"--role", "king"}} {
		if r := c.run(nil, nil, append([]string{"key", "invite"}, args...)...); r.code != 2 || r.stdout != "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestProject(t *testing.T) {
	c := newTerminalless(t)
	if out := c.ok("project", "create", "web", "--description", "the shop"); out != "registered the project web\n" {
		t.Errorf("create printed %q", out)
	}
	c.ok("project", "add", "web", "bob", "carol")
	c.ok("project", "remove", "web", "carol")
	if out := c.ok("project", "list"); !strings.Contains(out, "web") || !strings.Contains(out, "bob") || strings.Contains(out, "carol") || !strings.Contains(out, "the shop") {
		t.Errorf("list printed %q", out)
	}
	if out := c.ok("project", "list", "--org", "--json"); strings.Contains(out, "web") {
		t.Errorf("orgs: %q", out)
	}
	for _, m := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"create", "web"}, 1, "registered already"},
		{[]string{"create", "a/b"}, 2, "name: "},
		{[]string{"add", "nothing", "bob"}, 1, `no project "nothing"`},
		{[]string{"add", "web"}, 2, "give the principal"},
		{[]string{"add", "web", "A B"}, 2, "principal: "},
		{[]string{"remove", "web", "dave"}, 1, "not in the project"},
		{[]string{"delete", "nothing"}, 1, `no project "nothing"`},
	} {
		if r := c.run(nil, nil, append([]string{"project"}, m.args...)...); r.code != m.code || !strings.Contains(r.stderr, m.says) {
			t.Errorf("project %q: %+v", m.args, r)
		}
	}
	c.ok("project", "delete", "web")
}
