package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// checkpointColumns are the columns of checkpoints in the order of
// checkpointFields.
const checkpointColumns = "id, sandbox_id, name, layer, size_bytes, files, created_at"

func checkpointFields(c *sandbox.Checkpoint) []any {
	return []any{&c.ID, &c.SandboxID, &c.Name, &c.Layer, &c.SizeBytes, &c.Files, instant{&c.CreatedAt}}
}

// CreateCheckpoint implements sandbox.SnapshotStore.
func (s *Store) CreateCheckpoint(ctx context.Context, c sandbox.Checkpoint, l sandbox.Layer, events ...sandbox.Event) error {
	return s.transact(ctx, "create checkpoint", func(tx *sql.Tx) error {
		if _, err := selectSandbox(ctx, tx, c.SandboxID); err != nil {
			return err
		}
		if err := insertLayer(ctx, tx, l); err != nil {
			return err
		}
		fields := checkpointFields(&c)
		_, err := tx.ExecContext(ctx, "INSERT INTO checkpoints ("+checkpointColumns+") VALUES ("+marks(len(fields))+")", fields...)
		switch {
		case taken(err, "checkpoints.name"):
			e := fault.Wrap(err, fault.Exists, "sandbox %s has a checkpoint named %q already: delete it first, or choose another name", c.SandboxID, c.Name)
			e.Kind, e.Field = "checkpoint", "name"
			return e
		case taken(err, "checkpoints.id"):
			return fault.Wrap(err, fault.Exists, "a checkpoint %s exists already", c.ID).About("checkpoint")
		case err != nil:
			return err
		}
		return s.appendEvents(ctx, tx, c.SandboxID, events)
	})
}

// Checkpoints implements sandbox.SnapshotStore.
func (s *Store) Checkpoints(ctx context.Context, sandboxID string) ([]sandbox.Checkpoint, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+checkpointColumns+" FROM checkpoints WHERE ?1='' OR sandbox_id=?1 ORDER BY created_at DESC, rowid DESC", sandboxID)
	list, err := collect(rows, err, checkpointFields)
	return list, s.fail(ctx, "list checkpoints", err)
}

// DeleteCheckpoint implements sandbox.SnapshotStore.
func (s *Store) DeleteCheckpoint(ctx context.Context, id string, events ...sandbox.Event) error {
	return s.transact(ctx, "delete checkpoint", func(tx *sql.Tx) error {
		var sandboxID string
		err := tx.QueryRowContext(ctx, "DELETE FROM checkpoints WHERE id=? RETURNING sandbox_id", id).Scan(&sandboxID)
		if errors.Is(err, sql.ErrNoRows) {
			return fault.New(fault.NotFound, "there is no checkpoint %q", id).About("checkpoint")
		}
		if err != nil {
			return err
		}
		return s.appendEvents(ctx, tx, sandboxID, events)
	})
}
