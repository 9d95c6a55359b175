package store

import (
	"context"
	"database/sql"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// queryer is a *sql.DB or a *sql.Tx.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// history selects the records of one sandbox in a table, newest first; limit 0
// is all. The row id tells the order of those created at one instant.
type history struct {
	table, columns, sandboxID string
	limit, offset             int
}

// page reads a page of a history and how long all of it is, of one moment.
func page[T any](ctx context.Context, s *Store, h history, fields func(*T) []any) ([]T, int, error) {
	if h.limit < 0 {
		return nil, 0, fault.InvalidField("limit", "must not be negative")
	}
	if h.offset < 0 {
		return nil, 0, fault.InvalidField("offset", "must not be negative")
	}
	if h.limit == 0 {
		h.limit = -1 // no limit, in SQLite's words
	}
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, s.fail(ctx, "list "+h.table, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	var total int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+h.table+" WHERE sandbox_id=?", h.sandboxID).Scan(&total); err != nil {
		return nil, 0, s.fail(ctx, "count "+h.table, err)
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+h.columns+" FROM "+h.table+" WHERE sandbox_id=?"+
		" ORDER BY created_at DESC, rowid DESC LIMIT ? OFFSET ?", h.sandboxID, h.limit, h.offset)
	list, err := collect(rows, err, fields)
	if err != nil {
		return nil, 0, s.fail(ctx, "list "+h.table, err)
	}
	return list, total, nil
}

// collect reads all rows of a query and closes them. It takes the error of the
// query as well, so that it can be called on its result. No rows is an empty
// list, never nil.
func collect[T any](rows *sql.Rows, err error, fields func(*T) []any) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []T{}
	for rows.Next() {
		var record T
		if err := rows.Scan(fields(&record)...); err != nil {
			return nil, err
		}
		list = append(list, record)
	}
	return list, rows.Err()
}
