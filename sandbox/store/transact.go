package store

import (
	"context"
	"database/sql"
)

// transact runs fn in one write transaction. It waits its turn, and the turn
// passes to the next when fn has returned and its work is on the disk. fn must
// use tx alone: another write of the store would wait for this one for ever.
// Whatever fn returns undoes what it did.
func (s *Store) transact(ctx context.Context, op string, fn func(tx *sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, op, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := fn(tx); err != nil {
		return s.fail(ctx, op, err)
	}
	err = tx.Commit()
	if err == nil {
		s.announce()
	}
	return s.fail(ctx, op, err)
}
