package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// snapshotColumns are the columns of snapshots in the order of snapshotFields.
const snapshotColumns = "id, name, tag, description, public, owner, project, org, sandbox_id, parent, layer, driver, " +
	"runtime_id, runtime_name, runtime_icon_url, runtime_brand_color, runtime_tags, runtime_source, runtime_digest, " +
	"metadata, size_bytes, files, created_at"

func snapshotFields(p *sandbox.Snapshot) []any {
	return []any{
		&p.ID, &p.Name, &p.Tag, &p.Description, &p.Public, &p.Owner, &p.Project, &p.Org, &p.SandboxID, &p.Parent, &p.Layer, &p.Driver,
		&p.Runtime.ID, &p.Runtime.Name, &p.Runtime.IconURL, &p.Runtime.BrandColor, document{&p.Runtime.Tags}, &p.Runtime.Source, &p.Runtime.Digest,
		document{&p.Metadata}, &p.SizeBytes, &p.Files, instant{&p.CreatedAt},
	}
}

// CreateSnapshot implements sandbox.SnapshotStore.
func (s *Store) CreateSnapshot(ctx context.Context, p sandbox.Snapshot, l sandbox.Layer, events ...sandbox.Event) error {
	return s.transact(ctx, "create snapshot", func(tx *sql.Tx) error {
		if err := insertLayer(ctx, tx, l); err != nil {
			return err
		}
		if err := freeTag(ctx, tx, p); err != nil {
			return err
		}
		fields := snapshotFields(&p)
		_, err := tx.ExecContext(ctx, "INSERT INTO snapshots ("+snapshotColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if taken(err, "snapshots.id") {
			return fault.Wrap(err, fault.Exists, "a snapshot %s exists already", p.ID).About("snapshot")
		}
		if err != nil || p.SandboxID == "" {
			return err
		}
		return s.appendEvents(ctx, tx, p.SandboxID, events)
	})
}

// freeTag takes the tag of p from the other snapshot of the same owner that
// has it.
func freeTag(ctx context.Context, tx *sql.Tx, p sandbox.Snapshot) error {
	if p.Tag == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, "UPDATE snapshots SET tag='' WHERE owner=? AND tag=? AND id<>?", p.Owner, p.Tag, p.ID)
	return err
}

// UpdateSnapshot implements sandbox.SnapshotStore. It calls change once; change
// must not use the store. The id cannot be changed.
func (s *Store) UpdateSnapshot(ctx context.Context, id string, change func(*sandbox.Snapshot) error) (sandbox.Snapshot, error) {
	var p sandbox.Snapshot
	var refused error // what change said, to be returned as it is
	err := s.transact(ctx, "update snapshot", func(tx *sql.Tx) error {
		var err error
		if p, err = selectSnapshot(ctx, tx, id); err != nil {
			return err
		}
		if refused = change(&p); refused != nil {
			return refused
		}
		if p.ID != id {
			return fmt.Errorf("snapshot %s was renamed to %s by a change", id, p.ID)
		}
		if err := freeTag(ctx, tx, p); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE snapshots SET "+assignments(snapshotColumns)+" WHERE id=?", append(snapshotFields(&p), id)...)
		return err
	})
	switch {
	case refused != nil:
		return sandbox.Snapshot{}, refused
	case err != nil:
		return sandbox.Snapshot{}, err
	}
	return p, nil
}

// Snapshot implements sandbox.SnapshotStore.
func (s *Store) Snapshot(ctx context.Context, id string) (sandbox.Snapshot, error) {
	p, err := selectSnapshot(ctx, s.read, id)
	if err != nil {
		return sandbox.Snapshot{}, s.fail(ctx, "read snapshot", err)
	}
	return p, nil
}

// Snapshots implements sandbox.SnapshotStore. Records that sort alike are in
// the order of their ids; the total and the page are of the same moment.
func (s *Store) Snapshots(ctx context.Context, f sandbox.SnapshotFilter) ([]sandbox.Snapshot, int, error) {
	order, err := snapshotOrder(f)
	if err != nil {
		return nil, 0, err
	}
	if f.Limit < 0 {
		return nil, 0, fault.InvalidField("limit", "must not be negative")
	}
	if f.Offset < 0 {
		return nil, 0, fault.InvalidField("offset", "must not be negative")
	}
	if f.Limit == 0 {
		f.Limit = -1 // no limit, in SQLite's words
	}
	where, args := snapshotConditions(f)
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, s.fail(ctx, "list snapshots", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	var total int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM snapshots WHERE "+where, args...).Scan(&total); err != nil {
		return nil, 0, s.fail(ctx, "count snapshots", err)
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+snapshotColumns+" FROM snapshots WHERE "+where+" ORDER BY "+order+" LIMIT ? OFFSET ?",
		append(args, f.Limit, f.Offset)...)
	page, err := collect(rows, err, snapshotFields)
	if err != nil {
		return nil, 0, s.fail(ctx, "list snapshots", err)
	}
	return page, total, nil
}

// snapshotConditions returns the WHERE clause of a filter and its arguments.
func snapshotConditions(f sandbox.SnapshotFilter) (string, []any) {
	conditions := []string{"true"}
	var args []any
	switch {
	case f.Owner != "" && f.Public:
		conditions, args = append(conditions, "(owner=? OR public)"), append(args, f.Owner)
	case f.Owner != "":
		conditions, args = append(conditions, "owner=?"), append(args, f.Owner)
	case f.Public:
		conditions = append(conditions, "public")
	}
	for _, c := range []struct{ column, value string }{{"sandbox_id", f.Sandbox}, {"tag", f.Tag}, {"parent", f.Parent}} {
		if c.value != "" {
			conditions, args = append(conditions, c.column+"=?"), append(args, c.value)
		}
	}
	if f.Seen != nil {
		seen, values := seenCondition(f.Seen)
		condition := "(sandbox_id IN (SELECT id FROM sandboxes WHERE " + seen + ") OR project<>'' AND project IN (" + marks(len(f.Seen.Scope.Projects)) + "))"
		for _, p := range f.Seen.Scope.Projects {
			values = append(values, p)
		}
		conditions, args = append(conditions, condition), append(args, values...)
	}
	return strings.Join(conditions, " AND "), args
}

// snapshotOrder returns the ORDER BY clause of a filter.
func snapshotOrder(f sandbox.SnapshotFilter) (string, error) {
	columns := map[string]string{"": "created_at", "created": "created_at", "name": "name", "size": "size_bytes", "files": "files"}
	column, ok := columns[f.SortBy]
	if !ok {
		return "", fault.InvalidField("sortBy", "%q is not one of name, created, size, files", f.SortBy)
	}
	if f.Asc {
		return column + ", id", nil
	}
	return column + " DESC, id DESC", nil
}

// DeleteSnapshot implements sandbox.SnapshotStore.
func (s *Store) DeleteSnapshot(ctx context.Context, id string, also ...string) error {
	return s.transact(ctx, "delete snapshot", func(tx *sql.Tx) error {
		all := append([]string{id}, also...)
		for _, p := range all {
			var user string
			err := tx.QueryRowContext(ctx, "SELECT id FROM sandboxes WHERE live AND snapshot_id=? AND snapshot_id<>'' LIMIT 1", p).Scan(&user)
			if err == nil {
				return fault.New(fault.State, "snapshot %s is used by sandbox %s", p, user).About("snapshot")
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			rows, err := tx.QueryContext(ctx, "SELECT id FROM snapshots WHERE parent=? AND parent<>''", p)
			children, err := collect(rows, err, func(id *string) []any { return []any{id} })
			if err != nil {
				return err
			}
			for _, child := range children {
				if !slices.Contains(all, child) {
					return fault.New(fault.State, "snapshot %s is the parent of %s", p, child).About("snapshot")
				}
			}
		}
		for _, p := range all {
			if err := one(noSnapshot(p))(tx.ExecContext(ctx, "DELETE FROM snapshots WHERE id=?", p)); err != nil {
				return err
			}
		}
		return nil
	})
}

func selectSnapshot(ctx context.Context, q queryer, id string) (sandbox.Snapshot, error) {
	var p sandbox.Snapshot
	err := q.QueryRowContext(ctx, "SELECT "+snapshotColumns+" FROM snapshots WHERE id=?", id).Scan(snapshotFields(&p)...)
	if errors.Is(err, sql.ErrNoRows) {
		return p, noSnapshot(id)
	}
	return p, err
}

func noSnapshot(id string) error {
	return fault.New(fault.NotFound, "there is no snapshot %q", id).About("snapshot")
}
