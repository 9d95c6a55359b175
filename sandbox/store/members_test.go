package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestRoundTripGroups(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	full := filled[sandbox.Group](t)
	full.Kind = sandbox.OrgGroup
	must(t, s.CreateGroup(ctx, full))
	wantCode(t, s.CreateGroup(ctx, full), fault.Exists)
	other := full
	other.Kind = sandbox.ProjectGroup // the same name is another group
	must(t, s.CreateGroup(ctx, other))
	for _, m := range full.Members {
		must(t, s.AddMember(ctx, full.Kind, full.Name, m))
		must(t, s.AddMember(ctx, full.Kind, full.Name, m)) // again changes nothing
	}
	wantCode(t, s.AddMember(ctx, full.Kind, "nothing", full.Members[0]), fault.NotFound)
	list, err := s.Groups(ctx, sandbox.OrgGroup)
	must(t, err)
	slices.SortFunc(full.Members, func(a, b sandbox.Member) int { return strings.Compare(a.Principal, b.Principal) })
	same(t, "groups", list, []sandbox.Group{full})
	list, err = s.Groups(ctx, sandbox.ProjectGroup)
	must(t, err)
	if len(list) != 1 || len(list[0].Members) != 0 {
		t.Errorf("the other group: %+v", list)
	}
	who := full.Members[0].Principal
	for _, c := range []struct {
		kind               sandbox.GroupKind
		name               string
		registered, member bool
	}{
		{sandbox.OrgGroup, full.Name, true, true},
		{sandbox.ProjectGroup, full.Name, true, false},
		{sandbox.OrgGroup, "nothing", false, false},
	} {
		registered, member, err := s.Membership(ctx, c.kind, c.name, who)
		if must(t, err); registered != c.registered || member != c.member {
			t.Errorf("%s %q: registered %v, member %v", c.kind, c.name, registered, member)
		}
	}
	names, err := s.MemberOf(ctx, sandbox.OrgGroup, who)
	if must(t, err); !slices.Equal(names, []string{full.Name}) {
		t.Errorf("member of %q", names)
	}
	must(t, s.RemoveMember(ctx, full.Kind, full.Name, who))
	wantCode(t, s.RemoveMember(ctx, full.Kind, full.Name, who), fault.NotFound)
	must(t, s.DeleteGroup(ctx, full.Kind, full.Name))
	wantCode(t, s.DeleteGroup(ctx, full.Kind, full.Name), fault.NotFound)
	// Who was in it is not in one that is made anew under its name.
	must(t, s.CreateGroup(ctx, full))
	if names, err = s.MemberOf(ctx, sandbox.OrgGroup, full.Members[1].Principal); err != nil || len(names) != 0 {
		t.Errorf("members came back: %q, %v", names, err)
	}
}

func TestRoundTripInvites(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	full, bare := filled[keys.Invite](t), keys.Invite{ID: "inv_bare", Hash: "x"}
	full.CreatedAt = epoch.Add(time.Hour)
	must(t, s.AddInvite(ctx, full))
	must(t, s.AddInvite(ctx, bare))
	wantCode(t, s.AddInvite(ctx, full), fault.Exists)
	list, err := s.Invites(ctx)
	must(t, err)
	same(t, "invitations", list, []keys.Invite{bare, full})
	must(t, s.DeleteInvite(ctx, full.ID))
	wantCode(t, s.DeleteInvite(ctx, full.ID), fault.NotFound)
}

// An invitation opens as often as it says, until its time is up, and a use that
// registers nothing is none.
func TestRedeem(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	i := keys.Invite{ID: "inv_1", Hash: "h", Principal: "carol", Uses: 2, ExpiresAt: epoch.Add(time.Hour)}
	must(t, s.AddInvite(ctx, i))
	redeem := func(hash, fingerprint string, at time.Time) error {
		_, err := s.Redeem(ctx, hash, at, func(i keys.Invite) keys.Key {
			return keys.Key{Fingerprint: fingerprint, Principal: i.Principal}
		})
		return err
	}
	must(t, redeem("h", "SHA256:a", epoch))
	wantCode(t, redeem("other", "SHA256:b", epoch), fault.NotFound)
	wantCode(t, redeem("h", "SHA256:b", epoch.Add(time.Hour)), fault.NotFound)
	wantCode(t, redeem("h", "SHA256:a", epoch), fault.Exists)
	list, err := s.Invites(ctx)
	if must(t, err); list[0].Used != 1 {
		t.Errorf("used %d times", list[0].Used)
	}
	must(t, redeem("h", "SHA256:b", epoch))
	wantCode(t, redeem("h", "SHA256:c", epoch), fault.NotFound)
	all, err := s.Keys(ctx)
	if must(t, err); len(all) != 2 || all[1].Principal != "carol" {
		t.Errorf("keys %+v", all)
	}
}

// What is seen of sandboxes is the same whichever way a listing takes, and the
// same as Visibility says.
func TestSeen(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	var all []sandbox.Sandbox
	for i, o := range []struct{ name, owner, project string }{
		{"dev", "alice", ""}, {"dev", "bob", "web"}, {"", "bob", ""}, {"x", "carol", "web"}, {"y", "alice", "db"}, {"z", "carol", "db"},
	} {
		sb := sandbox.Sandbox{
			ID: "sbx_" + string(rune('a'+i)), Name: o.name, Owner: o.owner, Project: o.project, Status: sandbox.Idle,
			CreatedAt: epoch.Add(time.Duration(i) * time.Second),
		}
		must(t, s.CreateSandbox(ctx, sb, sandbox.Event{Type: sandbox.EventCreate}))
		all = append(all, sb)
	}
	for name, v := range map[string]*sandbox.Visibility{
		"own":              {Principal: "alice"},
		"own and projects": {Principal: "alice", Projects: []string{"web", "nothing"}},
		"an id":            {Principal: "alice", Scope: keys.Scope{Sandboxes: []string{"sbx_a", "sbx_c"}}},
		"a name":           {Principal: "alice", Projects: []string{"web"}, Scope: keys.Scope{Sandboxes: []string{"dev"}}},
		"a project":        {Principal: "alice", Projects: []string{"web"}, Scope: keys.Scope{Projects: []string{"db", "web"}}},
		"admin":            {Admin: true, Principal: "root", Scope: keys.Scope{Projects: []string{"db"}, Sandboxes: []string{"sbx_c", "x"}}},
		"nothing":          {Principal: "dave", Scope: keys.Scope{Sandboxes: []string{"dev"}}},
	} {
		var want []string
		for _, sb := range all {
			if v.Sees(sb.ID, sb.Name, sb.Owner, sb.Project) {
				want = append(want, sb.ID)
			}
		}
		for _, limit := range []int{0, 100} {
			list, total, err := s.Sandboxes(ctx, sandbox.SandboxFilter{Seen: v, Limit: limit, Asc: true})
			must(t, err)
			var got []string
			for _, sb := range list {
				got = append(got, sb.ID)
			}
			if !slices.Equal(got, want) || total != len(want) {
				t.Errorf("%s, limit %d: got %q (%d), want %q", name, limit, got, total, want)
			}
		}
		events, err := s.EventHistory(ctx, sandbox.EventFilter{Seen: v, Asc: true})
		must(t, err)
		var got []string
		for _, ev := range events {
			got = append(got, ev.SandboxID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: events of %q, want %q", name, got, want)
		}
	}
}
