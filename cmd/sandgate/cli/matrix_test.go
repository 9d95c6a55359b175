package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
)

// who is one who tries.
type who struct {
	name   string
	signer ssh.Signer
	may    []string // names of actions
}

// P2: who may do what with a sandbox, on every door of ssh. To all others it
// looks like one that does not exist.
func TestP02AuthorizationMatrix(t *testing.T) {
	m := newMatrix(t)
	root := m.engine.As(keys.Principal{ID: "root", Role: keys.Admin})
	if _, err := root.CreateProject(t.Context(), sandbox.ProjectGroup, "web", ""); err != nil {
		t.Fatal(err)
	}
	if err := root.AddMember(t.Context(), sandbox.ProjectGroup, "web", "bob"); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, x := range tryOuts() {
		all = append(all, x.name)
	}
	forwards := []string{"-L", "-D", "-R", "streamlocal", "-R streamlocal", "agent"}
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(names, n) })
	}
	scoped := func(s keys.Scope) ssh.Signer {
		return m.register(keys.Key{Principal: "alice", Role: keys.Member, Scope: s})
	}
	actors := []who{
		{"admin", m.register(keys.Key{Principal: "root", Role: keys.Admin}), all},
		{"owner", scoped(keys.Scope{}), all},
		{"project member", m.register(keys.Key{Principal: "bob", Role: keys.Member}), all},
		{"stranger", m.register(keys.Key{Principal: "carol", Role: keys.Member}), nil},
		{"expired key", m.register(keys.Key{Principal: "alice", Role: keys.Member, ExpiresAt: time.Now().Add(-time.Second)}), nil},
		{"key for this sandbox", scoped(keys.Scope{Sandboxes: []string{m.box}}), all},
		{"key by its name", scoped(keys.Scope{Sandboxes: []string{"dev"}}), all},
		{"key of its project", scoped(keys.Scope{Projects: []string{"web"}}), all},
		{"key for another sandbox", scoped(keys.Scope{Sandboxes: []string{"sbx_aaaaaaaaaaaa", "other"}}), nil},
		{"key of another project", scoped(keys.Scope{Projects: []string{"db"}}), nil},
		{"key without forwarding", scoped(keys.Scope{NoForwarding: true}), without(forwards...)},
		{"key for commands", scoped(keys.Scope{Verbs: []keys.Verb{keys.Exec}}), []string{"exec", "scp", "-J", "command tree", "API"}},
		{"key for files", scoped(keys.Scope{Verbs: []keys.Verb{keys.Files}}), []string{"sftp", "command tree", "API"}},
		{"key for shells", scoped(keys.Scope{Verbs: []keys.Verb{keys.Shell}}), []string{"shell", "command tree", "API"}},
		{"key for forwards", scoped(keys.Scope{Verbs: []keys.Verb{keys.Forward}}), []string{"-L", "-D", "-R", "streamlocal", "-R streamlocal", "command tree", "API"}},
		{"certificate", m.certified("permit-pty", "permit-port-forwarding", "permit-agent-forwarding"), all},
		{"bare certificate", m.certified(), without(forwards...)},
		{"unregistered key", newSSHSigner(t), nil},
		{"no key", nil, nil},
	}
	for _, a := range actors {
		t.Run(a.name, func(t *testing.T) {
			c, err := m.dial(m.box, a.signer)
			missing, merr := m.dial("sbx_zzzzzzzzzzzz", a.signer)
			if (err == nil) != (merr == nil) {
				t.Fatalf("the sandbox: %v, a missing one: %v", err, merr)
			}
			if err != nil {
				if len(a.may) > 0 {
					t.Fatal(err)
				}
				return // outside of every door
			}
			defer c.Close()
			defer missing.Close()
			for _, x := range tryOuts() {
				err := x.do(m, c, m.box, a.signer)
				if may := slices.Contains(a.may, x.name); may != (err == nil) {
					t.Errorf("%s: %v", x.name, err)
				}
				if len(a.may) > 0 || err == nil {
					continue
				}
				// What is not there says the same.
				never := x.do(m, missing, "sbx_zzzzzzzzzzzz", a.signer)
				hide := strings.NewReplacer(m.box, "ID", "sbx_zzzzzzzzzzzz", "ID")
				if never == nil || hide.Replace(err.Error()) != hide.Replace(never.Error()) {
					t.Errorf("%s tells them apart: %v and %v", x.name, err, never)
				}
			}
		})
	}
}
