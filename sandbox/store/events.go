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

// eventColumns are the columns of events in the order of eventFields.
const eventColumns = "id, sandbox_id, seq, type, principal, data, at, owner, position"

func eventFields(e *sandbox.Event) []any {
	return []any{
		&e.ID, &e.SandboxID, &e.Seq, &e.Type, &e.Principal, document{&e.Data}, instant{&e.At}, &e.Owner, &e.Position,
	}
}

// appendEvents writes events of one sandbox in their order. Their numbers go on
// from the last one, and so do their positions among those of all sandboxes;
// the write transaction they are in keeps everybody else from taking the same.
// What the events themselves say of these, and of SandboxID and Owner, does not
// matter.
func (s *Store) appendEvents(ctx context.Context, tx *sql.Tx, sandboxID string, events []sandbox.Event) error {
	if len(events) == 0 {
		return nil
	}
	var seq, position int64
	var owner string
	err := tx.QueryRowContext(ctx, "SELECT coalesce((SELECT max(seq) FROM events WHERE sandbox_id=sandboxes.id), 0),"+
		" coalesce((SELECT max(position) FROM events), 0), owner FROM sandboxes WHERE id=?", sandboxID).Scan(&seq, &position, &owner)
	if errors.Is(err, sql.ErrNoRows) {
		return noSandbox(sandboxID)
	}
	if err != nil {
		return fmt.Errorf("number events: %w", err)
	}
	for _, e := range events {
		seq++
		position++
		e.SandboxID, e.Seq, e.Position, e.Owner = sandboxID, seq, position, owner
		if e.ID == "" {
			e.ID = s.newID("evt")
		}
		if e.At.IsZero() {
			e.At = s.now()
		}
		fields := eventFields(&e)
		_, err := tx.ExecContext(ctx, "INSERT INTO events ("+eventColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if err != nil {
			return fmt.Errorf("append event %s: %w", e.Type, err)
		}
	}
	return nil
}

// Events implements sandbox.Store; limit 0 is all. A sandbox that does not
// exist has no events.
func (s *Store) Events(ctx context.Context, sandboxID string, afterSeq int64, limit int) ([]sandbox.Event, error) {
	if sandboxID == "" {
		return []sandbox.Event{}, nil
	}
	return s.EventHistory(ctx, sandbox.EventFilter{SandboxID: sandboxID, After: afterSeq, Asc: true, Limit: limit})
}

// EventHistory implements sandbox.EventStore.
func (s *Store) EventHistory(ctx context.Context, f sandbox.EventFilter) ([]sandbox.Event, error) {
	if f.Limit < 0 {
		return nil, fault.InvalidField("limit", "must not be negative")
	}
	if f.Limit == 0 {
		f.Limit = -1 // no limit, in SQLite's words
	}
	where, args, place := eventConditions(f)
	direction := " DESC"
	if f.Asc {
		direction = ""
	}
	rows, err := s.read.QueryContext(ctx, "SELECT "+eventColumns+" FROM events WHERE "+where+
		" ORDER BY "+place+direction+" LIMIT ?", append(args, f.Limit)...)
	events, err := collect(rows, err, eventFields)
	return events, s.fail(ctx, "list events", err)
}

// EventCount implements sandbox.EventStore.
func (s *Store) EventCount(ctx context.Context, f sandbox.EventFilter) (int, error) {
	where, args, _ := eventConditions(f)
	var n int
	err := s.read.QueryRowContext(ctx, "SELECT count(*) FROM events WHERE "+where, args...).Scan(&n)
	return n, s.fail(ctx, "count events", err)
}

// eventConditions returns the WHERE clause of a filter, its arguments, and the
// column that orders what it selects.
func eventConditions(f sandbox.EventFilter) (where string, args []any, place string) {
	place = "position"
	var conditions []string
	and := func(condition string, values ...any) {
		conditions = append(conditions, condition)
		args = append(args, values...)
	}
	if f.SandboxID != "" {
		place = "seq"
		and("sandbox_id=?", f.SandboxID)
	}
	and(place+">?", f.After)
	if f.Before > 0 {
		and(place+"<?", f.Before)
	}
	if f.Owner != "" {
		and("owner=?", f.Owner)
	}
	if f.Seen != nil {
		seen, values := seenCondition(f.Seen)
		and("sandbox_id IN (SELECT id FROM sandboxes WHERE "+seen+")", values...)
	}
	if !f.Since.IsZero() {
		and("at>=?", nanos(f.Since))
	}
	if !f.Until.IsZero() {
		and("at<?", nanos(f.Until))
	}
	if len(f.Types) > 0 {
		and("type IN (" + marks(len(f.Types)) + ")")
		for _, t := range f.Types {
			args = append(args, string(t))
		}
	}
	return strings.Join(conditions, " AND "), args, place
}

// LastPosition implements sandbox.EventStore.
func (s *Store) LastPosition(ctx context.Context) (int64, error) {
	var last int64
	err := s.read.QueryRowContext(ctx, "SELECT coalesce(max(position), 0) FROM events").Scan(&last)
	return last, s.fail(ctx, "read the last event", err)
}

// Written implements sandbox.EventStore.
func (s *Store) Written() <-chan struct{} {
	s.writtenMu.Lock()
	defer s.writtenMu.Unlock()
	if s.written == nil {
		s.written = make(chan struct{})
	}
	return s.written
}

// announce wakes whoever waits for a write. It costs nothing while nobody does.
func (s *Store) announce() {
	s.writtenMu.Lock()
	defer s.writtenMu.Unlock()
	if s.written != nil {
		close(s.written)
		s.written = nil
	}
}
