package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// recordingColumns are the columns of recordings in the order of
// recordingFields.
const recordingColumns = "id, sandbox_id, session_id, session, owner, command, input, bytes, duration, complete, created_at, ended_at"

func recordingFields(r *sandbox.Recording) []any {
	return []any{
		&r.ID, &r.SandboxID, &r.SessionID, &r.Session, &r.Owner, &r.Command, &r.Input, &r.Bytes, &r.Duration, &r.Complete,
		instant{&r.CreatedAt}, instant{&r.EndedAt},
	}
}

// CreateRecording implements sandbox.RecordingStore. NotFound when the sandbox
// is not there.
func (s *Store) CreateRecording(ctx context.Context, r sandbox.Recording) error {
	return s.transact(ctx, "create recording", func(tx *sql.Tx) error {
		if _, err := selectSandbox(ctx, tx, r.SandboxID); err != nil {
			return err
		}
		fields := recordingFields(&r)
		_, err := tx.ExecContext(ctx, "INSERT INTO recordings ("+recordingColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if taken(err, "recordings.id") {
			return fault.Wrap(err, fault.Exists, "a recording %s exists already", r.ID).About("recording")
		}
		return err
	})
}

// UpdateRecording implements sandbox.RecordingStore. It calls change once;
// change must not use the store. Neither id can be changed.
func (s *Store) UpdateRecording(ctx context.Context, id string, change func(*sandbox.Recording) error) (sandbox.Recording, error) {
	var r sandbox.Recording
	var refused error // what change said, to be returned as it is
	err := s.transact(ctx, "update recording", func(tx *sql.Tx) error {
		var err error
		if r, err = selectRecording(ctx, tx, id); err != nil {
			return err
		}
		sandboxID := r.SandboxID
		if refused = change(&r); refused != nil {
			return refused
		}
		if r.ID != id || r.SandboxID != sandboxID {
			return fmt.Errorf("recording %s of %s was renamed to %s of %s by a change", id, sandboxID, r.ID, r.SandboxID)
		}
		_, err = tx.ExecContext(ctx, "UPDATE recordings SET "+assignments(recordingColumns)+" WHERE id=?", append(recordingFields(&r), id)...)
		return err
	})
	switch {
	case refused != nil:
		return sandbox.Recording{}, refused
	case err != nil:
		return sandbox.Recording{}, err
	}
	return r, nil
}

// Recording implements sandbox.RecordingStore.
func (s *Store) Recording(ctx context.Context, id string) (sandbox.Recording, error) {
	r, err := selectRecording(ctx, s.read, id)
	if err != nil {
		return sandbox.Recording{}, s.fail(ctx, "read recording", err)
	}
	return r, nil
}

// Recordings implements sandbox.RecordingStore. The total and the page are of
// the same moment.
func (s *Store) Recordings(ctx context.Context, f sandbox.RecordingFilter) ([]sandbox.Recording, int, error) {
	switch {
	case f.Limit < 0:
		return nil, 0, fault.InvalidField("limit", "must not be negative")
	case f.Offset < 0:
		return nil, 0, fault.InvalidField("offset", "must not be negative")
	case f.Limit == 0:
		f.Limit = -1 // no limit, in SQLite's words
	}
	where, args := []string{"1"}, []any{}
	restrict := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	if f.SandboxID != "" {
		restrict("sandbox_id=?", f.SandboxID)
	}
	if f.Owner != "" {
		restrict("sandbox_id IN (SELECT id FROM sandboxes WHERE owner=?)", f.Owner)
	}
	if f.Seen != nil {
		seen, values := seenCondition(f.Seen)
		restrict("sandbox_id IN (SELECT id FROM sandboxes WHERE "+seen+")", values...)
	}
	if f.Open {
		restrict("ended_at=0")
	}
	if !f.Before.IsZero() {
		restrict("created_at<?", nanos(f.Before))
	}
	from := " FROM recordings WHERE " + strings.Join(where, " AND ")
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, s.fail(ctx, "list recordings", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	var total int
	if err := tx.QueryRowContext(ctx, "SELECT count(*)"+from, args...).Scan(&total); err != nil {
		return nil, 0, s.fail(ctx, "count recordings", err)
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+recordingColumns+from+" ORDER BY created_at DESC, rowid DESC LIMIT ? OFFSET ?", append(args, f.Limit, f.Offset)...)
	list, err := collect(rows, err, recordingFields)
	if err != nil {
		return nil, 0, s.fail(ctx, "list recordings", err)
	}
	return list, total, nil
}

// DeleteRecording implements sandbox.RecordingStore.
func (s *Store) DeleteRecording(ctx context.Context, id string) error {
	return s.transact(ctx, "delete recording", func(tx *sql.Tx) error {
		if _, err := selectRecording(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM recordings WHERE id=?", id)
		return err
	})
}

func selectRecording(ctx context.Context, q queryer, id string) (sandbox.Recording, error) {
	var r sandbox.Recording
	err := q.QueryRowContext(ctx, "SELECT "+recordingColumns+" FROM recordings WHERE id=?", id).Scan(recordingFields(&r)...)
	if errors.Is(err, sql.ErrNoRows) {
		return r, fault.New(fault.NotFound, "there is no recording %q", id).About("recording")
	}
	return r, err
}
