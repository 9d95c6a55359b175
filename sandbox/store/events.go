package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// eventColumns are the columns of events in the order of eventFields.
const eventColumns = "id, sandbox_id, seq, type, principal, data, at"

func eventFields(e *sandbox.Event) []any {
	return []any{&e.ID, &e.SandboxID, &e.Seq, &e.Type, &e.Principal, document{&e.Data}, instant{&e.At}}
}

// appendEvents writes events of one sandbox in their order. Their numbers go on
// from the last one; the write transaction they are in keeps everybody else
// from taking the same. What the events themselves say of Seq and SandboxID
// does not matter.
func (s *Store) appendEvents(ctx context.Context, tx *sql.Tx, sandboxID string, events []sandbox.Event) error {
	if len(events) == 0 {
		return nil
	}
	var seq int64
	err := tx.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM events WHERE sandbox_id=?", sandboxID).Scan(&seq)
	if err != nil {
		return fmt.Errorf("number events: %w", err)
	}
	for _, e := range events {
		seq++
		e.SandboxID, e.Seq = sandboxID, seq
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
	if limit < 0 {
		return nil, fault.InvalidField("limit", "must not be negative")
	}
	if limit == 0 {
		limit = -1
	}
	rows, err := s.read.QueryContext(ctx,
		"SELECT "+eventColumns+" FROM events WHERE sandbox_id=? AND seq>? ORDER BY seq LIMIT ?", sandboxID, afterSeq, limit)
	events, err := collect(rows, err, eventFields)
	return events, s.fail(ctx, "list events", err)
}
