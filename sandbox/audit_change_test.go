package sandbox_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
)

// auditTrail collects audit records.
type auditTrail struct {
	mu  sync.Mutex
	all []sandbox.AuditRecord
}

func (a *auditTrail) write(r sandbox.AuditRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, r)
}

func (a *auditTrail) of(what string) (out []sandbox.AuditRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.all {
		if r.What == what {
			out = append(out, r)
		}
	}
	return out
}

// Whoever changes keys, invitations, projects or recordings is told with what
// they changed, and who was not let, too.
func TestChangesAreAudited(t *testing.T) {
	trail := new(auditTrail)
	w := newWorld(t, func(cfg *sandbox.Config) { cfg.AuditSink = trail.write })
	ctx := t.Context()
	boss := admin
	boss.KeyID, boss.Door = "SHA256:boss", "ssh"
	r, b := w.engine.As(boss), w.engine.As(bob)
	last := func(what string, kind sandbox.AuditKind, by, target, owner string) {
		t.Helper()
		all := trail.of(what)
		if len(all) == 0 {
			t.Errorf("%s is not told", what)
			return
		}
		got := all[len(all)-1]
		if got.Kind != kind || got.Principal != by || got.Target != target || got.Owner != owner ||
			(kind == sandbox.AuditRefused) != (got.Reason != "") || got.Time.IsZero() ||
			by == boss.ID && (got.Key != boss.KeyID || got.Door != "ssh" || got.Role != "admin") {
			t.Errorf("%s is told as %+v", what, got)
		}
	}
	const change, refused = sandbox.AuditChange, sandbox.AuditRefused

	_, err := r.AddKey(ctx, keys.Key{Fingerprint: "SHA256:a", Principal: "alice"})
	must(t, err)
	last("key add", change, boss.ID, "SHA256:a", "alice")
	_, err = b.AddKey(ctx, keys.Key{Fingerprint: "SHA256:x\n{}", Principal: "alice"})
	if err == nil {
		t.Error("bob adds a key for alice")
	}
	last("key add", refused, "bob", `SHA256:x\n{}`, "alice")
	if b.DeleteKey(ctx, "SHA256:a") == nil {
		t.Error("bob deletes the key of alice")
	}
	last("key delete", refused, "bob", "SHA256:a", "alice")
	must(t, r.DeleteKey(ctx, "SHA256:a"))
	last("key delete", change, boss.ID, "SHA256:a", "alice")

	k, _, err := b.AddAPIKey(ctx, keys.APIKey{})
	must(t, err)
	last("api-key add", change, "bob", k.ID, "bob")
	must(t, r.DeleteAPIKey(ctx, k.ID))
	last("api-key delete", change, boss.ID, k.ID, "bob")

	i, code, err := r.CreateInvite(ctx, keys.Invite{Principal: "dave"})
	must(t, err)
	last("invite create", change, boss.ID, i.ID, "dave")
	_, err = w.engine.Join(ctx, code, keys.Key{Fingerprint: "SHA256:d"})
	must(t, err)
	last("invite use", change, "dave", i.ID, "")
	if b.RevokeInvite(ctx, i.ID) == nil {
		t.Error("bob revokes the invitation of dave")
	}
	last("invite revoke", refused, "bob", i.ID, "")
	must(t, r.RevokeInvite(ctx, i.ID))
	last("invite revoke", change, boss.ID, i.ID, "")

	w.members(sandbox.ProjectGroup, "web", bob)
	must(t, r.RemoveMember(ctx, sandbox.ProjectGroup, "web", "bob"))
	last("project remove", change, boss.ID, "web", "bob")
	must(t, r.DeleteProject(ctx, sandbox.ProjectGroup, "web"))
	last("project delete", change, boss.ID, "web", "")
	if err := b.AddMember(ctx, "evil\n", "\x1b[2J", strings.Repeat("x", 1<<20)); err == nil {
		t.Error("bob adds somebody")
	}
	got := trail.of("project add")
	if bad := got[len(got)-1]; bad.Target != `\x1b[2J` || len(bad.Owner) > 200 || got[0].Owner != "bob" {
		t.Errorf("told %+v", got)
	}

	x := w.recorded(w.create(alice, sandbox.CreateRequest{}))
	rec := x.end()
	if w.engine.As(alice).DeleteRecording(ctx, rec.ID) == nil {
		t.Error("alice deletes a recording")
	}
	last("recording delete", refused, "alice", rec.ID, "alice")
	must(t, r.DeleteRecording(ctx, rec.ID))
	last("recording delete", change, boss.ID, rec.ID, "alice")
	raw, err := json.Marshal(trail.all)
	if err != nil || strings.Contains(string(raw), code) || strings.Contains(string(raw), strings.ToUpper(code)) {
		t.Errorf("the code of an invitation is in the log: %v", err)
	}
}

// Refusals cost a client nothing: no more than some are told, and how many were
// left out.
func TestRefusedChangesAreBounded(t *testing.T) {
	trail := new(auditTrail)
	w := newWorld(t, func(cfg *sandbox.Config) { cfg.AuditSink = trail.write })
	refuse := func() {
		if w.engine.As(bob).DeleteKey(t.Context(), "SHA256:none") == nil {
			t.Error("a key that is not there was deleted")
		}
	}
	for range 50 {
		refuse()
	}
	w.now.advance(2e9)
	refuse()
	all := trail.of("key delete")
	if len(all) != 21 || all[20].Unlogged != 30 {
		t.Errorf("%d are told, the last %+v", len(all), all[len(all)-1])
	}
}
