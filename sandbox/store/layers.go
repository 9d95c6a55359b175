package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// layerColumns are the columns of layers in the order of layerFields.
const layerColumns = "id, driver, below, runtime_digest, size_bytes, files, digest, created_at"

func layerFields(l *sandbox.Layer) []any {
	return []any{&l.ID, &l.Driver, document{&l.Below}, &l.RuntimeDigest, &l.SizeBytes, &l.Files, &l.Digest, instant{&l.CreatedAt}}
}

// AddLayer implements sandbox.SnapshotStore.
func (s *Store) AddLayer(ctx context.Context, l sandbox.Layer) error {
	return s.transact(ctx, "add layer", func(tx *sql.Tx) error { return insertLayer(ctx, tx, l) })
}

// Layer implements sandbox.SnapshotStore.
func (s *Store) Layer(ctx context.Context, id string) (sandbox.Layer, error) {
	var l sandbox.Layer
	err := s.read.QueryRowContext(ctx, "SELECT "+layerColumns+" FROM layers WHERE id=?", id).Scan(layerFields(&l)...)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Layer{}, noLayer(id)
	}
	if err != nil {
		return sandbox.Layer{}, s.fail(ctx, "read layer", err)
	}
	return l, nil
}

// Layers implements sandbox.SnapshotStore. The newest comes first, so no layer
// comes before one that lies on it.
func (s *Store) Layers(ctx context.Context) ([]sandbox.Layer, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+layerColumns+" FROM layers ORDER BY created_at DESC, rowid DESC")
	list, err := collect(rows, err, layerFields)
	return list, s.fail(ctx, "list layers", err)
}

// SetLayerDigest implements sandbox.SnapshotStore.
func (s *Store) SetLayerDigest(ctx context.Context, id, digest string) error {
	return s.transact(ctx, "set digest of layer", func(tx *sql.Tx) error {
		return one(noLayer(id))(tx.ExecContext(ctx, "UPDATE layers SET digest=? WHERE id=?", digest, id))
	})
}

// layerUsers finds out whether anything names the layer ?1.
const layerUsers = `SELECT EXISTS (SELECT 1 FROM snapshots WHERE layer=?1)
	OR EXISTS (SELECT 1 FROM checkpoints WHERE layer=?1)
	OR EXISTS (SELECT 1 FROM layers l, json_each(l.below) b WHERE b.value=?1)
	OR EXISTS (SELECT 1 FROM sandboxes s, json_each(s.layers) b WHERE s.live AND s.layers NOT IN ('null', '[]') AND b.value=?1)`

// DeleteLayer implements sandbox.SnapshotStore.
func (s *Store) DeleteLayer(ctx context.Context, id string) error {
	return s.transact(ctx, "delete layer", func(tx *sql.Tx) error {
		var used bool
		if err := tx.QueryRowContext(ctx, layerUsers, id).Scan(&used); err != nil {
			return err
		}
		if used {
			return fault.New(fault.State, "the layer %s is in use", id).About("layer")
		}
		return one(noLayer(id))(tx.ExecContext(ctx, "DELETE FROM layers WHERE id=?", id))
	})
}

// insertLayer records a layer. Those under it must be there.
func insertLayer(ctx context.Context, tx *sql.Tx, l sandbox.Layer) error {
	if err := layersThere(ctx, tx, l.Below); err != nil {
		return err
	}
	fields := layerFields(&l)
	_, err := tx.ExecContext(ctx, "INSERT INTO layers ("+layerColumns+") VALUES ("+marks(len(fields))+")", fields...)
	if taken(err, "layers.id") {
		return fault.Wrap(err, fault.Exists, "a layer %s exists already", l.ID).About("layer")
	}
	return err
}

// layersThere refuses to build on layers that were deleted a moment ago. In
// one transaction with what names them, so that nothing names one that is gone.
func layersThere(ctx context.Context, q queryer, ids []string) error {
	for _, id := range ids {
		var there bool
		if err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM layers WHERE id=?)", id).Scan(&there); err != nil {
			return err
		}
		if !there {
			return noLayer(id)
		}
	}
	return nil
}

func noLayer(id string) error {
	return fault.New(fault.NotFound, "there is no saved layer %q; what was made from it was deleted", id).About("layer")
}
