package sandbox

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// GroupKind is what a label of sandboxes stands for.
type GroupKind string

// The kinds of groups.
const (
	// ProjectGroup shares: its members see and use each other's sandboxes.
	ProjectGroup GroupKind = "project"
	// OrgGroup bounds: what its members make counts for the quota of the org.
	OrgGroup GroupKind = "org"
)

// Group is a registered project or org. A label that is not registered is a
// word for filters and anybody's; a registered one is put on sandboxes only by
// its members and by admins.
type Group struct {
	Kind        GroupKind
	Name        string
	Description string
	Members     []Member
	CreatedBy   string
	CreatedAt   time.Time
}

// Member is a principal in a group.
type Member struct {
	Principal string
	AddedBy   string
	AddedAt   time.Time
}

// MemberStore keeps groups and who is in them. It works as Store does.
type MemberStore interface {
	// CreateGroup registers a group without its Members. Exists.
	CreateGroup(ctx context.Context, g Group) error
	DeleteGroup(ctx context.Context, kind GroupKind, name string) error
	// Groups returns all of a kind with their members, by name.
	Groups(ctx context.Context, kind GroupKind) ([]Group, error)
	// AddMember adds a principal to a group; one who is in it already stays.
	AddMember(ctx context.Context, kind GroupKind, name string, m Member) error
	RemoveMember(ctx context.Context, kind GroupKind, name, principal string) error
	// Membership tells whether a group is registered and the principal in it.
	Membership(ctx context.Context, kind GroupKind, name, principal string) (registered, member bool, err error)
	// MemberOf returns the names of the groups a principal is in.
	MemberOf(ctx context.Context, kind GroupKind, principal string) ([]string, error)
}

// ProjectOperations are what an Actor can do with projects and orgs. Everybody
// sees those they are in; admins see and change all.
type ProjectOperations interface {
	Projects(ctx context.Context, kind GroupKind) ([]Group, error)
	CreateProject(ctx context.Context, kind GroupKind, name, description string) (Group, error)
	// DeleteProject makes the label a word again; sandboxes keep it.
	DeleteProject(ctx context.Context, kind GroupKind, name string) error
	AddMember(ctx context.Context, kind GroupKind, name, principal string) error
	RemoveMember(ctx context.Context, kind GroupKind, name, principal string) error
}

var _ ProjectOperations = (*Actor)(nil)

// isMember reports whether a principal is in a registered group.
func (e *Engine) isMember(ctx context.Context, kind GroupKind, name, principal string) (bool, error) {
	if name == "" || principal == "" {
		return false, nil
	}
	_, member, err := e.cfg.Store.Membership(ctx, kind, name, principal)
	return member, err
}

// mayLabel refuses labels that are registered to others.
func (a *Actor) mayLabel(ctx context.Context, project, org string) error {
	if a.who.IsAdmin() {
		return nil
	}
	for kind, name := range map[GroupKind]string{ProjectGroup: project, OrgGroup: org} {
		if name == "" {
			continue
		}
		registered, member, err := a.e.cfg.Store.Membership(ctx, kind, name, a.who.ID)
		if err != nil {
			return err
		}
		if registered && !member {
			return &fault.Error{Code: fault.Denied, Kind: string(kind), Message: "the " + string(kind) + " " + name +
				" is registered and you are not in it; ask an admin, or leave it out"}
		}
	}
	return nil
}

// label checks the labels of a new sandbox. Who is in an org makes sandboxes in
// it, so that its quota holds.
func (a *Actor) label(ctx context.Context, project string, org *string) error {
	if a.who.IsAdmin() {
		return nil
	}
	orgs, err := a.e.cfg.Store.MemberOf(ctx, OrgGroup, a.who.ID)
	switch {
	case err != nil:
		return err
	case *org == "" && len(orgs) == 1:
		*org = orgs[0]
	case len(orgs) > 0 && !slices.Contains(orgs, *org):
		return fault.InvalidField("org", "name the org that this counts for: %s", strings.Join(orgs, " or "))
	}
	return a.mayLabel(ctx, project, *org)
}

// Projects lists the groups of a kind.
func (a *Actor) Projects(ctx context.Context, kind GroupKind) ([]Group, error) {
	if err := kind.validate(); err != nil {
		return nil, err
	}
	all, err := a.e.cfg.Store.Groups(ctx, kind)
	if err != nil || a.who.IsAdmin() {
		return all, err
	}
	return slices.DeleteFunc(all, func(g Group) bool {
		return !slices.ContainsFunc(g.Members, func(m Member) bool { return m.Principal == a.who.ID })
	}), nil
}

// CreateProject registers a group.
func (a *Actor) CreateProject(ctx context.Context, kind GroupKind, name, description string) (_ Group, err error) {
	defer func() { a.changedGroup(kind, "create", name, "", err) }()
	if err := a.groups("CreateProject", kind); err != nil {
		return Group{}, err
	}
	if !projectRule.MatchString(name) {
		return Group{}, fault.InvalidField("name", "%q is not an id: use 1 to 64 letters, digits, dots, hyphens and underscores", clip(name, 64))
	}
	if len(description) > maxDescription {
		return Group{}, fault.InvalidField("description", "longer than %d bytes", maxDescription)
	}
	g := Group{Kind: kind, Name: name, Description: description, CreatedBy: a.who.ID, CreatedAt: a.e.cfg.Now()}
	if err := a.e.cfg.Store.CreateGroup(ctx, g); err != nil {
		return Group{}, err
	}
	a.e.cfg.Log.Info("group registered", "kind", kind, "name", name, "by", a.who.ID)
	return g, nil
}

// DeleteProject forgets a group and who was in it.
func (a *Actor) DeleteProject(ctx context.Context, kind GroupKind, name string) (err error) {
	defer func() { a.changedGroup(kind, "delete", name, "", err) }()
	if err := a.groups("DeleteProject", kind); err != nil {
		return err
	}
	if err := a.e.cfg.Store.DeleteGroup(ctx, kind, name); err != nil {
		return noGroup(err, kind, name)
	}
	a.e.cfg.Log.Info("group deleted", "kind", kind, "name", clip(name, 64), "by", a.who.ID)
	a.e.expel(ctx)
	return nil
}

// AddMember adds a principal to a group.
func (a *Actor) AddMember(ctx context.Context, kind GroupKind, name, principal string) (err error) {
	defer func() { a.changedGroup(kind, "add", name, principal, err) }()
	if err := a.groups("AddMember", kind); err != nil {
		return err
	}
	if !keys.ValidPrincipal(principal) {
		return fault.InvalidField("principal", "%q is not a name: use 1 to 32 lower-case letters, digits, dots, hyphens and underscores", clip(principal, 64))
	}
	err = a.e.cfg.Store.AddMember(ctx, kind, name, Member{Principal: principal, AddedBy: a.who.ID, AddedAt: a.e.cfg.Now()})
	if err != nil {
		return noGroup(err, kind, name)
	}
	a.e.cfg.Log.Info("member added", "kind", kind, "name", name, "user", principal, "by", a.who.ID)
	return nil
}

// RemoveMember takes a principal out of a group.
func (a *Actor) RemoveMember(ctx context.Context, kind GroupKind, name, principal string) (err error) {
	defer func() { a.changedGroup(kind, "remove", name, principal, err) }()
	if err := a.groups("RemoveMember", kind); err != nil {
		return err
	}
	err = a.e.cfg.Store.RemoveMember(ctx, kind, name, principal)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "%q is not in the %s %q", clip(principal, 64), kind, clip(name, 64)).About(string(kind))
	}
	if err == nil {
		a.e.cfg.Log.Info("member removed", "kind", kind, "name", name, "user", clip(principal, 64), "by", a.who.ID)
		a.e.expel(ctx)
	}
	return err
}

// groups checks that the actor may change groups: an admin whose key is not
// fenced in.
func (a *Actor) groups(op operation, kind GroupKind) error {
	if err := a.allow(op); err != nil {
		return err
	}
	if !a.who.IsAdmin() || a.who.Scope.Fenced() {
		return fault.New(fault.Denied, "only an admin can change projects and orgs").About("key")
	}
	return kind.validate()
}

func (k GroupKind) validate() error {
	if k != ProjectGroup && k != OrgGroup {
		return fault.InvalidField("kind", "%q is not a kind: use project or org", clip(string(k), 32))
	}
	return nil
}

func noGroup(err error, kind GroupKind, name string) error {
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "there is no %s %q; `project list` shows them", kind, clip(name, 64)).About(string(kind))
	}
	return err
}
