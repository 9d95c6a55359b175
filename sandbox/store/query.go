package store

import (
	"context"
	"database/sql"
)

// queryer is a *sql.DB or a *sql.Tx.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
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
