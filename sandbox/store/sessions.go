package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// sessionColumns are the columns of sessions in the order of sessionFields.
const sessionColumns = "id, sandbox_id, name, owner, process_id, command, user, status, recording, " +
	"exit, reason, created_at, detached_at, ended_at, active_at"

func sessionFields(s *sandbox.Session) []any {
	return []any{
		&s.ID, &s.SandboxID, &s.Name, &s.Owner, &s.ProcessID, &s.Command, &s.User, &s.Status, &s.Recording,
		document{&s.Exit}, &s.Reason, instant{&s.CreatedAt}, instant{&s.DetachedAt}, instant{&s.EndedAt}, instant{&s.ActiveAt},
	}
}

// CreateSession implements sandbox.SessionStore. NotFound when the sandbox is
// not there; what state it is in is not looked at.
func (s *Store) CreateSession(ctx context.Context, n sandbox.Session, events ...sandbox.Event) error {
	return s.transact(ctx, "create session", func(tx *sql.Tx) error {
		if _, err := selectSandbox(ctx, tx, n.SandboxID); err != nil {
			return err
		}
		fields := sessionFields(&n)
		_, err := tx.ExecContext(ctx, "INSERT INTO sessions ("+sessionColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if err := sessionTaken(err, &n); err != nil {
			return err
		}
		return s.appendEvents(ctx, tx, n.SandboxID, events)
	})
}

// sessionTaken turns the error of a write that a live session is in the way of.
func sessionTaken(err error, n *sandbox.Session) error {
	switch {
	case taken(err, "sessions.id"):
		return fault.Wrap(err, fault.Exists, "a session %s exists already", n.ID).About("session")
	case taken(err, "sessions.name"):
		e := fault.Wrap(err, fault.Exists, "there is a session %q in the sandbox already", n.Name).About("session")
		e.Field = "name"
		return e
	}
	return err
}

// UpdateSession implements sandbox.SessionStore. It calls change once; change
// must not use the store. Neither id can be changed.
func (s *Store) UpdateSession(ctx context.Context, id string, change func(*sandbox.Session) ([]sandbox.Event, error)) (sandbox.Session, error) {
	var n sandbox.Session
	var refused error // what change said, to be returned as it is
	err := s.transact(ctx, "update session", func(tx *sql.Tx) error {
		var err error
		if n, err = selectSession(ctx, tx, id); err != nil {
			return err
		}
		sandboxID := n.SandboxID
		var events []sandbox.Event
		if events, refused = change(&n); refused != nil {
			return refused
		}
		if n.ID != id || n.SandboxID != sandboxID {
			return fmt.Errorf("session %s of %s was renamed to %s of %s by a change", id, sandboxID, n.ID, n.SandboxID)
		}
		_, err = tx.ExecContext(ctx, "UPDATE sessions SET "+assignments(sessionColumns)+" WHERE id=?", append(sessionFields(&n), id)...)
		if err := sessionTaken(err, &n); err != nil {
			return err
		}
		return s.appendEvents(ctx, tx, sandboxID, events)
	})
	switch {
	case refused != nil:
		return sandbox.Session{}, refused
	case err != nil:
		return sandbox.Session{}, err
	}
	return n, nil
}

// Session implements sandbox.SessionStore.
func (s *Store) Session(ctx context.Context, id string) (sandbox.Session, error) {
	n, err := selectSession(ctx, s.read, id)
	if err != nil {
		return sandbox.Session{}, s.fail(ctx, "read session", err)
	}
	return n, nil
}

// Sessions implements sandbox.SessionStore.
func (s *Store) Sessions(ctx context.Context, f sandbox.SessionFilter) ([]sandbox.Session, error) {
	where, args := "1", []any{}
	if f.LiveOnly {
		where = "live"
	}
	if f.SandboxID != "" {
		where, args = where+" AND sandbox_id=?", append(args, f.SandboxID)
	}
	if f.Name != "" {
		where, args = where+" AND name=?", append(args, f.Name)
	}
	switch {
	case f.Limit < 0:
		return nil, fault.InvalidField("limit", "must not be negative")
	case f.Limit == 0:
		f.Limit = -1 // no limit, in SQLite's words
	}
	rows, err := s.read.QueryContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE "+where+
		" ORDER BY created_at DESC, rowid DESC LIMIT ?", append(args, f.Limit)...)
	list, err := collect(rows, err, sessionFields)
	return list, s.fail(ctx, "list sessions", err)
}

func selectSession(ctx context.Context, q queryer, id string) (sandbox.Session, error) {
	var n sandbox.Session
	err := q.QueryRowContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE id=?", id).Scan(sessionFields(&n)...)
	if errors.Is(err, sql.ErrNoRows) {
		return n, fault.New(fault.NotFound, "there is no session %q", id).About("session")
	}
	return n, err
}
