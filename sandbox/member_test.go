package sandbox_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

var carol = keys.Principal{ID: "carol", Role: keys.Member}

// members registers a group and puts principals into it.
func (w *world) members(kind sandbox.GroupKind, name string, who ...keys.Principal) {
	w.t.Helper()
	a := w.engine.As(admin)
	if _, err := a.CreateProject(w.t.Context(), kind, name, ""); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range who {
		if err := a.AddMember(w.t.Context(), kind, name, p.ID); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Members of a project see and use its sandboxes by id, and delete their own
// alone. Strangers see nothing of it.
func TestProjectMembers(t *testing.T) {
	w := newWorld(t)
	w.members(sandbox.ProjectGroup, "web", alice, bob)
	s := w.create(alice, sandbox.CreateRequest{Name: "dev", Project: "web"})
	private := w.create(alice, sandbox.CreateRequest{Name: "mine"})
	ctx, b, c := t.Context(), w.engine.As(bob), w.engine.As(carol)

	sub, err := b.Subscribe(ctx, "", -1)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if x, _ := w.exec(bob, s.ID, "true"); x.Status != sandbox.ExecCompleted {
		t.Errorf("a member's command: %+v", x)
	}
	if n := <-sub.Events(); n.Event.SandboxID != s.ID {
		t.Errorf("a member is told of %+v", n.Event)
	}
	if _, err := b.Pause(ctx, s.ID); err != nil {
		t.Errorf("a member pauses: %v", err)
	}
	_, err = b.Get(ctx, "dev") // names are the owner's
	wantCode(t, err, fault.NotFound)
	_, err = b.Get(ctx, private.ID)
	wantCode(t, err, fault.NotFound)
	wantCode(t, b.Delete(ctx, s.ID), fault.Denied)
	own := w.create(bob, sandbox.CreateRequest{Project: "web"})
	list, total, err := b.List(ctx, sandbox.ListRequest{})
	if err != nil || total != 2 || !slices.ContainsFunc(list, func(o sandbox.Sandbox) bool { return o.ID == s.ID }) {
		t.Errorf("a member lists %d, %v", total, err)
	}
	if evs, err := b.EventHistory(ctx, "", sandbox.EventQuery{}); err != nil || !slices.ContainsFunc(evs, func(e sandbox.Event) bool { return e.SandboxID == s.ID }) ||
		slices.ContainsFunc(evs, func(e sandbox.Event) bool { return e.SandboxID == private.ID }) {
		t.Errorf("a member's history: %d events, %v", len(evs), err)
	}

	_, err = c.Get(ctx, s.ID)
	wantCode(t, err, fault.NotFound)
	if _, total, err := c.List(ctx, sandbox.ListRequest{Project: "web"}); err != nil || total != 0 {
		t.Errorf("a stranger lists %d, %v", total, err)
	}
	_, err = c.Create(ctx, sandbox.CreateRequest{Project: "web"})
	wantCode(t, err, fault.Denied)
	if _, err := c.Create(ctx, sandbox.CreateRequest{Project: "free"}); err != nil {
		t.Errorf("a label that is not registered: %v", err)
	}

	// Who leaves has what is theirs, and no more.
	if err := w.engine.As(admin).RemoveMember(ctx, sandbox.ProjectGroup, "web", "bob"); err != nil {
		t.Fatal(err)
	}
	_, err = b.Get(ctx, s.ID)
	wantCode(t, err, fault.NotFound)
	if err := b.Delete(ctx, own.ID); err != nil {
		t.Errorf("a former member deletes their own: %v", err)
	}
}

// Projects and orgs are for admins to change, and for members to see.
func TestProjectsAreForAdmins(t *testing.T) {
	w := newWorld(t)
	w.members(sandbox.ProjectGroup, "web", alice)
	ctx, a := t.Context(), w.engine.As(alice)
	_, err := a.CreateProject(ctx, sandbox.ProjectGroup, "x", "")
	wantCode(t, err, fault.Denied)
	wantCode(t, a.DeleteProject(ctx, sandbox.ProjectGroup, "web"), fault.Denied)
	wantCode(t, a.AddMember(ctx, sandbox.ProjectGroup, "web", "carol"), fault.Denied)
	wantCode(t, a.RemoveMember(ctx, sandbox.ProjectGroup, "web", "alice"), fault.Denied)
	for who, want := range map[*sandbox.Actor]int{a: 1, w.engine.As(bob): 0, w.engine.As(admin): 1} {
		if got, err := who.Projects(ctx, sandbox.ProjectGroup); err != nil || len(got) != want {
			t.Errorf("%s sees %+v, %v", who.Principal().ID, got, err)
		}
	}
	r := w.engine.As(admin)
	_, err = r.CreateProject(ctx, sandbox.ProjectGroup, "web", "")
	wantCode(t, err, fault.Exists)
	_, err = r.CreateProject(ctx, "team", "x", "")
	wantCode(t, err, fault.Invalid)
	_, err = r.CreateProject(ctx, sandbox.OrgGroup, "../x", "")
	wantCode(t, err, fault.Invalid)
	wantCode(t, r.AddMember(ctx, sandbox.OrgGroup, "nothing", "alice"), fault.NotFound)
	wantCode(t, r.AddMember(ctx, sandbox.ProjectGroup, "web", "No One"), fault.Invalid)
	wantCode(t, r.RemoveMember(ctx, sandbox.ProjectGroup, "web", "bob"), fault.NotFound)
	wantCode(t, r.DeleteProject(ctx, sandbox.ProjectGroup, "nothing"), fault.NotFound)
}

// The quota of an org is a fence: who is in one cannot step out of it.
func TestOrgFence(t *testing.T) {
	w := newWorld(t, func(c *sandbox.Config) { c.OrgQuota.Sandboxes = 1 })
	w.members(sandbox.OrgGroup, "acme", alice, bob)
	s := w.create(alice, sandbox.CreateRequest{})
	if s.Org != "acme" {
		t.Errorf("made in the org %q", s.Org)
	}
	ctx := t.Context()
	_, err := w.engine.As(bob).Create(ctx, sandbox.CreateRequest{})
	wantCode(t, err, fault.Exhausted)
	_, err = w.engine.As(bob).Create(ctx, sandbox.CreateRequest{Org: "elsewhere"})
	wantCode(t, err, fault.Invalid)
	_, err = w.engine.As(carol).Create(ctx, sandbox.CreateRequest{Org: "acme"})
	wantCode(t, err, fault.Denied)
	w.create(carol, sandbox.CreateRequest{})
}

// A key makes keys and invitations within what it may do itself, and sees and
// removes no other.
func TestKeysWithinScope(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	if _, err := w.engine.As(alice).AddKey(ctx, keys.Key{Fingerprint: "SHA256:free"}); err != nil {
		t.Fatal(err)
	}
	who := alice
	who.KeyID = "SHA256:scoped"
	who.Scope = keys.Scope{Sandboxes: []string{"dev"}, Verbs: []keys.Verb{keys.Shell, keys.Keyring}, NoForwarding: true}
	a := w.engine.As(who)
	made, err := a.AddKey(ctx, keys.Key{Fingerprint: "SHA256:like"})
	if err != nil || !made.Scope.Equal(who.Scope) {
		t.Errorf("a key like it: %+v, %v", made, err)
	}
	i, _, err := a.CreateInvite(ctx, keys.Invite{Scope: keys.Scope{Verbs: []keys.Verb{keys.Shell}}})
	if err != nil || i.Scope.String() != "sandbox=dev verbs=shell no-forwarding" {
		t.Errorf("a narrower invitation: %+v, %v", i, err)
	}
	for name, scope := range map[string]keys.Scope{
		"another sandbox": {Sandboxes: []string{"other"}}, "a project": {Projects: []string{"web"}}, "another verb": {Verbs: []keys.Verb{keys.Exec}},
	} {
		_, err := a.AddKey(ctx, keys.Key{Fingerprint: "SHA256:more", Scope: scope})
		if !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v", name, err)
		}
		_, _, err = a.AddAPIKey(ctx, keys.APIKey{Scope: scope})
		if !fault.Is(err, fault.Denied) {
			t.Errorf("API key for %s: %v", name, err)
		}
	}
	if all, err := a.ListKeys(ctx); err != nil || len(all) != 1 || all[0].Fingerprint != "SHA256:like" {
		t.Errorf("it sees %+v, %v", all, err)
	}
	wantCode(t, a.DeleteKey(ctx, "SHA256:free"), fault.NotFound)
	limited := alice
	limited.Limits.NoPTY = true
	_, err = w.engine.As(limited).AddKey(ctx, keys.Key{Fingerprint: "SHA256:unlimited"})
	wantCode(t, err, fault.Denied)
	boss := admin
	boss.Scope.Verbs = []keys.Verb{keys.Keyring}
	_, err = w.engine.As(boss).AddKey(ctx, keys.Key{Fingerprint: "SHA256:bob", Principal: "bob"})
	wantCode(t, err, fault.Denied)
}

// A key that may do less, or holds for less long, takes none along that its
// principal has beside it.
func TestKeysBesideAreSafe(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	boss := w.engine.As(admin)
	for _, k := range []keys.Key{{Fingerprint: "SHA256:boss", Role: keys.Admin}, {Fingerprint: "SHA256:plain", Role: keys.Member}} {
		if _, err := boss.AddKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	api, _, err := boss.AddAPIKey(ctx, keys.APIKey{Name: "ci"})
	if err != nil || api.Role != keys.Admin {
		t.Fatalf("%+v, %v", api, err)
	}
	lesser := admin
	lesser.Role, lesser.KeyID = keys.Member, "SHA256:plain"
	l := w.engine.As(lesser)
	wantCode(t, l.DeleteKey(ctx, "SHA256:boss"), fault.NotFound)
	wantCode(t, l.DeleteAPIKey(ctx, api.ID), fault.NotFound)
	if all, err := l.ListKeys(ctx); err != nil || len(all) != 1 || all[0].Fingerprint != "SHA256:plain" {
		t.Errorf("it sees %+v, %v", all, err)
	}

	a := w.engine.As(alice)
	soon := time.Now().Add(time.Hour)
	for fingerprint, expires := range map[string]time.Time{"SHA256:long": {}, "SHA256:short": soon, "SHA256:shorter": soon.Add(-time.Minute)} {
		if _, err := a.AddKey(ctx, keys.Key{Fingerprint: fingerprint, ExpiresAt: expires}); err != nil {
			t.Fatal(err)
		}
	}
	short := alice
	short.KeyID, short.Expires = "SHA256:short", soon
	b := w.engine.As(short)
	wantCode(t, b.DeleteKey(ctx, "SHA256:long"), fault.Denied)
	for _, fingerprint := range []string{"SHA256:shorter", "SHA256:short"} {
		if err := b.DeleteKey(ctx, fingerprint); err != nil {
			t.Errorf("%s: %v", fingerprint, err)
		}
	}
}

// Who is taken out of a project does not go on typing in its sandboxes.
func TestWhoLeavesAProjectLeavesItsSessions(t *testing.T) {
	w := newWorld(t)
	w.members(sandbox.ProjectGroup, "web", alice, bob)
	s := w.create(alice, sandbox.CreateRequest{Project: "web"})
	mine := w.session(alice, s.ID, request("main"))
	mine.shows("ready")
	theirs := w.session(bob, s.ID, request("main"))
	theirs.shows("ready")
	if err := w.engine.As(admin).RemoveMember(t.Context(), sandbox.ProjectGroup, "web", "bob"); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.end(); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "not use this sandbox any more") {
		t.Errorf("he was told %v", err)
	}
	mine.types("still here\n")
	mine.shows("got still here")
	if _, err := w.tryOpen(bob, s.ID, request("main"), nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("he comes back: %v", err)
	}
}

// An invitation registers as many keys as it says, in the rights of who made it;
// whatever is wrong with a code, the answer is the same.
func TestInvite(t *testing.T) {
	w := newWorld(t)
	ctx, a := t.Context(), w.engine.As(alice)
	_, _, err := a.CreateInvite(ctx, keys.Invite{Principal: "bob"})
	wantCode(t, err, fault.Denied)
	_, _, err = a.CreateInvite(ctx, keys.Invite{Role: keys.Admin})
	wantCode(t, err, fault.Denied)
	i, code, err := w.engine.As(admin).CreateInvite(ctx, keys.Invite{Principal: "dave", Uses: 2, ExpiresAt: w.now.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	refused := func(code, fingerprint string) {
		t.Helper()
		_, err := w.engine.Join(ctx, code, keys.Key{Fingerprint: fingerprint})
		wantCode(t, err, fault.Denied)
		words = append(words, err.Error())
	}
	refused("", "SHA256:1")
	refused("sgi_"+strings.Repeat("a", 26), "SHA256:1")
	k, err := w.engine.Join(ctx, " "+strings.ToUpper(code)+"\r\n", keys.Key{Fingerprint: "SHA256:1", Role: keys.Admin, Principal: "root"})
	if err != nil || k.Principal != "dave" || k.Role != keys.Member {
		t.Fatalf("joined as %+v, %v", k, err)
	}
	_, err = w.engine.Join(ctx, code, keys.Key{Fingerprint: "SHA256:1"})
	wantCode(t, err, fault.Exists)
	if _, err := w.engine.Join(ctx, code, keys.Key{Fingerprint: "SHA256:2"}); err != nil {
		t.Error(err)
	}
	refused(code, "SHA256:3")
	_, code, err = a.CreateInvite(ctx, keys.Invite{ExpiresAt: w.now.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	w.now.advance(time.Hour)
	refused(code, "SHA256:3")
	if slices.Sort(words); words[0] != words[len(words)-1] {
		t.Errorf("the answers differ: %q", words)
	}
	if all, err := a.Invites(ctx); err != nil || len(all) != 1 || all[0].Principal != "alice" {
		t.Errorf("alice sees %+v, %v", all, err)
	}
	wantCode(t, a.RevokeInvite(ctx, i.ID), fault.NotFound)
	if err := w.engine.As(admin).RevokeInvite(ctx, i.ID); err != nil {
		t.Error(err)
	}
}
