package store

import (
	"context"
	"database/sql"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// groupColumns are the columns of member_groups in the order of groupFields.
const groupColumns = "kind, name, description, created_by, created_at"

func groupFields(g *sandbox.Group) []any {
	return []any{&g.Kind, &g.Name, &g.Description, &g.CreatedBy, instant{&g.CreatedAt}}
}

// membership is one row of members.
type membership struct {
	kind sandbox.GroupKind
	name string
	sandbox.Member
}

const memberColumns = "kind, name, principal, added_by, added_at"

func memberFields(m *membership) []any {
	return []any{&m.kind, &m.name, &m.Principal, &m.AddedBy, instant{&m.AddedAt}}
}

// CreateGroup implements sandbox.MemberStore.
func (s *Store) CreateGroup(ctx context.Context, g sandbox.Group) error {
	return s.transact(ctx, "create group", func(tx *sql.Tx) error {
		fields := groupFields(&g)
		_, err := tx.ExecContext(ctx, "INSERT INTO member_groups ("+groupColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if taken(err) {
			e := fault.Wrap(err, fault.Exists, "the %s %q is registered already", g.Kind, g.Name)
			e.Kind, e.Field = string(g.Kind), "name"
			return e
		}
		return err
	})
}

// DeleteGroup implements sandbox.MemberStore; who was in it goes with it.
func (s *Store) DeleteGroup(ctx context.Context, kind sandbox.GroupKind, name string) error {
	return s.transact(ctx, "delete group", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM members WHERE kind=? AND name=?", kind, name); err != nil {
			return err
		}
		return one(noGroup(kind, name))(tx.ExecContext(ctx, "DELETE FROM member_groups WHERE kind=? AND name=?", kind, name))
	})
}

// Groups implements sandbox.MemberStore. Groups and their members are of the
// same moment.
func (s *Store) Groups(ctx context.Context, kind sandbox.GroupKind) ([]sandbox.Group, error) {
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, s.fail(ctx, "list groups", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	rows, err := tx.QueryContext(ctx, "SELECT "+groupColumns+" FROM member_groups WHERE kind=? ORDER BY name", kind)
	groups, err := collect(rows, err, groupFields)
	if err != nil {
		return nil, s.fail(ctx, "list groups", err)
	}
	rows, err = tx.QueryContext(ctx, "SELECT "+memberColumns+" FROM members WHERE kind=? ORDER BY name, principal", kind)
	members, err := collect(rows, err, memberFields)
	if err != nil {
		return nil, s.fail(ctx, "list members", err)
	}
	for i := range groups { // both are in the order of names
		for len(members) > 0 && members[0].name == groups[i].Name {
			groups[i].Members = append(groups[i].Members, members[0].Member)
			members = members[1:]
		}
	}
	return groups, nil
}

// AddMember implements sandbox.MemberStore; NotFound when there is no such group.
func (s *Store) AddMember(ctx context.Context, kind sandbox.GroupKind, name string, m sandbox.Member) error {
	return s.transact(ctx, "add member", func(tx *sql.Tx) error {
		var there bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM member_groups WHERE kind=? AND name=?)", kind, name).Scan(&there); err != nil {
			return err
		}
		if !there {
			return noGroup(kind, name)
		}
		fields := memberFields(&membership{kind, name, m})
		_, err := tx.ExecContext(ctx, "INSERT INTO members ("+memberColumns+") VALUES ("+marks(len(fields))+") ON CONFLICT DO NOTHING", fields...)
		return err
	})
}

// RemoveMember implements sandbox.MemberStore.
func (s *Store) RemoveMember(ctx context.Context, kind sandbox.GroupKind, name, principal string) error {
	return s.transact(ctx, "remove member", func(tx *sql.Tx) error {
		missing := fault.New(fault.NotFound, "%q is not in the %s %q", principal, kind, name).About(string(kind))
		return one(missing)(tx.ExecContext(ctx, "DELETE FROM members WHERE kind=? AND name=? AND principal=?", kind, name, principal))
	})
}

// Membership implements sandbox.MemberStore.
func (s *Store) Membership(ctx context.Context, kind sandbox.GroupKind, name, principal string) (registered, member bool, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM member_groups WHERE kind=?1 AND name=?2),"+
		" EXISTS (SELECT 1 FROM members WHERE kind=?1 AND name=?2 AND principal=?3)", kind, name, principal).Scan(&registered, &member)
	return registered, member, s.fail(ctx, "read membership", err)
}

// MemberOf implements sandbox.MemberStore, in the order of names.
func (s *Store) MemberOf(ctx context.Context, kind sandbox.GroupKind, principal string) ([]string, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT name FROM members WHERE principal=? AND kind=? ORDER BY name", principal, kind)
	names, err := collect(rows, err, func(name *string) []any { return []any{name} })
	return names, s.fail(ctx, "list memberships", err)
}

func noGroup(kind sandbox.GroupKind, name string) error {
	return fault.New(fault.NotFound, "there is no %s %q", kind, name).About(string(kind))
}

// seenCondition is the WHERE clause of what somebody may see among sandboxes,
// and its arguments.
func seenCondition(v *sandbox.Visibility) (string, []any) {
	if v == nil {
		return "true", nil
	}
	var args []any
	in := func(column string, list []string) string {
		for _, word := range list {
			args = append(args, word)
		}
		return column + " IN (" + marks(len(list)) + ")"
	}
	condition := "true"
	if !v.Admin {
		args = append(args, v.Principal)
		condition = "(owner=? OR project<>'' AND " + in("project", v.Projects) + ")"
	}
	if v.Scope.Fenced() {
		condition += " AND (" + in("id", v.Scope.Sandboxes) + " OR project<>'' AND " + in("project", v.Scope.Projects)
		args = append(args, v.Principal)
		condition += " OR owner=? AND name<>'' AND " + in("name", v.Scope.Sandboxes) + ")"
	}
	return condition, args
}
