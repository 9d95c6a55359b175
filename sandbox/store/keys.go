package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// touchEvery is how exact "last used" is. A use within this time of the noted
// one is not written, so that a script that connects ten times a second costs
// one write a minute.
const touchEvery = time.Minute

// keyColumns are the columns of keys in the order of keyFields.
const keyColumns = "fingerprint, type, public_key, comment, principal, role, scope, no_touch, created_at, expires_at, last_used_at"

func keyFields(k *keys.Key) []any {
	return []any{
		&k.Fingerprint, &k.Type, &k.PublicKey, &k.Comment, &k.Principal, &k.Role, document{&k.Scope}, &k.NoTouch,
		instant{&k.CreatedAt}, instant{&k.ExpiresAt}, instant{&k.LastUsedAt},
	}
}

// AddKey implements sandbox.KeyStore.
func (s *Store) AddKey(ctx context.Context, k keys.Key) error {
	return s.transact(ctx, "add key", func(tx *sql.Tx) error {
		return insertKey(ctx, tx, k)
	})
}

func insertKey(ctx context.Context, tx *sql.Tx, k keys.Key) error {
	fields := keyFields(&k)
	_, err := tx.ExecContext(ctx, "INSERT INTO keys ("+keyColumns+") VALUES ("+marks(len(fields))+")", fields...)
	if taken(err, "keys.fingerprint") {
		return fault.Wrap(err, fault.Exists, "the key %s is registered already", k.Fingerprint).About("key")
	}
	return err
}

// Key implements sandbox.KeyStore.
func (s *Store) Key(ctx context.Context, fingerprint string) (keys.Key, error) {
	var k keys.Key
	err := s.read.QueryRowContext(ctx, "SELECT "+keyColumns+" FROM keys WHERE fingerprint=?", fingerprint).Scan(keyFields(&k)...)
	if errors.Is(err, sql.ErrNoRows) {
		return keys.Key{}, noKey(fingerprint)
	}
	if err != nil {
		return keys.Key{}, s.fail(ctx, "read key", err)
	}
	return k, nil
}

// Keys implements sandbox.KeyStore; the oldest comes first.
func (s *Store) Keys(ctx context.Context) ([]keys.Key, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+keyColumns+" FROM keys ORDER BY created_at, rowid")
	list, err := collect(rows, err, keyFields)
	return list, s.fail(ctx, "list keys", err)
}

// DeleteKey implements sandbox.KeyStore; NotFound when it is not registered.
func (s *Store) DeleteKey(ctx context.Context, fingerprint string) error {
	return s.transact(ctx, "delete key", func(tx *sql.Tx) error {
		return one(noKey(fingerprint))(tx.ExecContext(ctx, "DELETE FROM keys WHERE fingerprint=?", fingerprint))
	})
}

// TouchKey implements sandbox.KeyStore. It writes once a minute at most, and
// never turns the time back.
func (s *Store) TouchKey(ctx context.Context, fingerprint string, at time.Time) error {
	k, err := s.Key(ctx, fingerprint)
	if err != nil || at.Before(k.LastUsedAt.Add(touchEvery)) {
		return err
	}
	return s.transact(ctx, "touch key", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE keys SET last_used_at=max(last_used_at, ?) WHERE fingerprint=?", nanos(at), fingerprint)
		return err
	})
}

func noKey(fingerprint string) error {
	return fault.New(fault.NotFound, "there is no key %q", fingerprint).About("key")
}

// one returns a function that takes the result of a statement, and returns
// missing when it changed no row.
func one(missing error) func(sql.Result, error) error {
	return func(r sql.Result, err error) error {
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return missing
	}
}
