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

// sandboxColumns are the columns of sandboxes in the order of sandboxFields.
const sandboxColumns = "id, name, description, mode, status, status_reason, owner, project, org, driver, " +
	"runtime_id, runtime_name, runtime_icon_url, runtime_brand_color, runtime_tags, runtime_source, runtime_digest, " +
	"memory_bytes, cpu_millis, disk_bytes, processes, env, metadata, " +
	"idle_timeout, execution_timeout, paused_timeout, command, executions, exit_code, guest, " +
	"created_at, updated_at, ended_at, active_at, " +
	"port, network, snapshot_id, snapshot_tag, parent, layers, paused_at, terminates_at, memory"

func sandboxFields(s *sandbox.Sandbox) []any {
	return []any{
		&s.ID, &s.Name, &s.Description, &s.Mode, &s.Status, &s.StatusReason, &s.Owner, &s.Project, &s.Org, &s.Driver,
		&s.Runtime.ID, &s.Runtime.Name, &s.Runtime.IconURL, &s.Runtime.BrandColor, document{&s.Runtime.Tags}, &s.Runtime.Source, &s.Runtime.Digest,
		&s.Limits.MemoryBytes, &s.Limits.CPUMillis, &s.Limits.DiskBytes, &s.Limits.Processes, document{&s.Env}, document{&s.Metadata},
		&s.Timeouts.Idle, &s.Timeouts.Execution, &s.Timeouts.Paused, document{&s.Command}, &s.Executions, &s.ExitCode, &s.Guest,
		instant{&s.CreatedAt}, instant{&s.UpdatedAt}, instant{&s.EndedAt}, instant{&s.ActiveAt},
		&s.Port, document{&s.Network}, &s.SnapshotID, &s.SnapshotTag, &s.Parent, document{&s.Layers}, instant{&s.PausedAt}, instant{&s.TerminatesAt}, &s.Memory,
	}
}

// CreateSandbox implements sandbox.Store.
func (s *Store) CreateSandbox(ctx context.Context, sb sandbox.Sandbox, ev sandbox.Event) error {
	return s.transact(ctx, "create sandbox", func(tx *sql.Tx) error {
		if err := layersThere(ctx, tx, sb.Layers); err != nil {
			return err
		}
		fields := sandboxFields(&sb)
		_, err := tx.ExecContext(ctx, "INSERT INTO sandboxes ("+sandboxColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if err != nil {
			return sandboxTaken(err, sb)
		}
		return s.appendEvents(ctx, tx, sb.ID, []sandbox.Event{ev})
	})
}

// UpdateSandbox implements sandbox.Store. It calls change once; change must not
// use the store. UpdatedAt becomes the present time unless change sets it. The
// id cannot be changed.
func (s *Store) UpdateSandbox(ctx context.Context, id string, change func(*sandbox.Sandbox) ([]sandbox.Event, error)) (sandbox.Sandbox, error) {
	var sb sandbox.Sandbox
	var refused error // what change said, to be returned as it is
	err := s.transact(ctx, "update sandbox", func(tx *sql.Tx) error {
		var err error
		if sb, err = selectSandbox(ctx, tx, id); err != nil {
			return err
		}
		updated := sb.UpdatedAt
		var events []sandbox.Event
		if events, refused = change(&sb); refused != nil {
			return refused
		}
		if sb.ID != id {
			return fmt.Errorf("sandbox %s was renamed to %s by a change", id, sb.ID)
		}
		if sb.UpdatedAt.Equal(updated) {
			sb.UpdatedAt = s.now()
		}
		_, err = tx.ExecContext(ctx, "UPDATE sandboxes SET "+assignments(sandboxColumns)+" WHERE id=?",
			append(sandboxFields(&sb), id)...)
		if err != nil {
			return sandboxTaken(err, sb)
		}
		return s.appendEvents(ctx, tx, id, events)
	})
	switch {
	case refused != nil:
		return sandbox.Sandbox{}, refused
	case err != nil:
		return sandbox.Sandbox{}, err
	}
	return sb, nil
}

// Sandbox implements sandbox.Store.
func (s *Store) Sandbox(ctx context.Context, id string) (sandbox.Sandbox, error) {
	sb, err := selectSandbox(ctx, s.read, id)
	if err != nil {
		return sandbox.Sandbox{}, s.fail(ctx, "read sandbox", err)
	}
	return sb, nil
}

// Sandboxes implements sandbox.Store. Records that sort alike are in the order
// of their ids, so pages never overlap while nothing changes. The total and
// the page are of the same moment.
func (s *Store) Sandboxes(ctx context.Context, f sandbox.SandboxFilter) ([]sandbox.Sandbox, int, error) {
	order, err := sandboxOrder(f)
	if err != nil {
		return nil, 0, err
	}
	if f.Limit < 0 {
		return nil, 0, fault.InvalidField("limit", "must not be negative")
	}
	if f.Offset < 0 {
		return nil, 0, fault.InvalidField("offset", "must not be negative")
	}
	if f.Limit > 0 && f.Name == "" && f.Snapshot == "" {
		return s.listPage(ctx, f)
	}
	if f.Limit == 0 {
		f.Limit = -1 // no limit, in SQLite's words
	}
	where, args := sandboxConditions(f)

	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, s.fail(ctx, "list sandboxes", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	var total int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sandboxes WHERE "+where, args...).Scan(&total); err != nil {
		return nil, 0, s.fail(ctx, "count sandboxes", err)
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE "+where+" ORDER BY "+order+" LIMIT ? OFFSET ?",
		append(args, f.Limit, f.Offset)...)
	page, err := collect(rows, err, sandboxFields)
	if err != nil {
		return nil, 0, s.fail(ctx, "list sandboxes", err)
	}
	return page, total, nil
}

// listPage reads a page of a listing by way of the catalogue.
func (s *Store) listPage(ctx context.Context, f sandbox.SandboxFilter) ([]sandbox.Sandbox, int, error) {
	// Whoever has the catalogue has the newest view of the database as well.
	s.catalogue.mu.Lock()
	locked := true
	unlock := func() {
		if locked {
			locked = false
			s.catalogue.mu.Unlock()
		}
	}
	defer unlock()
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, s.fail(ctx, "list sandboxes", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	if err := s.catalogue.learn(ctx, tx); err != nil {
		return nil, 0, s.fail(ctx, "list sandboxes", err)
	}
	ids, total := s.catalogue.page(f)
	unlock()
	if len(ids) == 0 {
		return []sandbox.Sandbox{}, total, nil
	}
	args, place := make([]any, len(ids)), make(map[string]int, len(ids))
	for i, id := range ids {
		args[i], place[id] = id, i
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE id IN ("+marks(len(ids))+")", args...)
	page, err := collect(rows, err, sandboxFields)
	if err != nil {
		return nil, 0, s.fail(ctx, "list sandboxes", err)
	}
	slices.SortFunc(page, func(a, b sandbox.Sandbox) int { return place[a.ID] - place[b.ID] })
	return page, total, nil
}

// sandboxConditions returns the WHERE clause of a filter and its arguments.
func sandboxConditions(f sandbox.SandboxFilter) (string, []any) {
	conditions := []string{"true"}
	var args []any
	equal := func(column, value string) {
		if value != "" {
			conditions = append(conditions, column+"=?")
			args = append(args, value)
		}
	}
	equal("owner", f.Owner)
	if f.Name != "" { // the second half is what the index is for
		conditions, args = append(conditions, "name=? AND name<>''"), append(args, f.Name)
	}
	equal("project", f.Project)
	equal("mode", string(f.Mode))
	if f.Snapshot != "" { // the second half is what the index is for
		conditions, args = append(conditions, "snapshot_id=? AND snapshot_id<>''"), append(args, f.Snapshot)
	}
	if len(f.Statuses) > 0 {
		conditions = append(conditions, "status IN ("+marks(len(f.Statuses))+")")
		for _, st := range f.Statuses {
			args = append(args, string(st))
		}
	}
	if f.LiveOnly {
		conditions = append(conditions, "live")
	}
	if f.Seen != nil {
		seen, more := seenCondition(f.Seen)
		conditions, args = append(conditions, seen), append(args, more...)
	}
	return strings.Join(conditions, " AND "), args
}

// sandboxOrder returns the ORDER BY clause of a filter.
func sandboxOrder(f sandbox.SandboxFilter) (string, error) {
	var column string
	switch f.SortBy {
	case "", "created":
		column = "created_at"
	case "updated":
		column = "updated_at"
	case "execution_count":
		column = "executions"
	case "name", "status", "mode":
		column = f.SortBy
	default:
		return "", fault.InvalidField("sortBy", "%q is not one of name, created, updated, status, mode, execution_count", f.SortBy)
	}
	if f.Asc {
		return column + ", id", nil
	}
	return column + " DESC, id DESC", nil
}

func selectSandbox(ctx context.Context, q queryer, id string) (sandbox.Sandbox, error) {
	var sb sandbox.Sandbox
	err := q.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE id=?", id).Scan(sandboxFields(&sb)...)
	if errors.Is(err, sql.ErrNoRows) {
		return sb, noSandbox(id)
	}
	return sb, err
}

func noSandbox(id string) error {
	return fault.New(fault.NotFound, "there is no sandbox %q", id).About("sandbox")
}

// sandboxTaken turns the violation of a unique index into a fault that names it.
func sandboxTaken(err error, sb sandbox.Sandbox) error {
	switch {
	case taken(err, "sandboxes.name"):
		e := fault.Wrap(err, fault.Exists, "a sandbox named %q exists already: delete it first, or choose another name", sb.Name)
		e.Kind, e.Field = "sandbox", "name"
		return e
	case taken(err, "sandboxes.id"):
		return fault.Wrap(err, fault.Exists, "a sandbox %s exists already", sb.ID).About("sandbox")
	}
	return err
}
