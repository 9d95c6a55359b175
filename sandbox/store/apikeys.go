package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// apiKeyColumns are the columns of api_keys in the order of apiKeyFields.
const apiKeyColumns = "id, name, principal, role, scope, hash, created_at, expires_at, last_used_at"

func apiKeyFields(k *keys.APIKey) []any {
	return []any{
		&k.ID, &k.Name, &k.Principal, &k.Role, document{&k.Scope}, &k.Hash,
		instant{&k.CreatedAt}, instant{&k.ExpiresAt}, instant{&k.LastUsedAt},
	}
}

// AddAPIKey implements sandbox.KeyStore. Exists when the id or the hash is
// there already.
func (s *Store) AddAPIKey(ctx context.Context, k keys.APIKey) error {
	return s.transact(ctx, "add API key", func(tx *sql.Tx) error {
		fields := apiKeyFields(&k)
		_, err := tx.ExecContext(ctx, "INSERT INTO api_keys ("+apiKeyColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if taken(err) {
			return fault.Wrap(err, fault.Exists, "the API key %s exists already", k.ID).About("key")
		}
		return err
	})
}

// APIKeyByHash implements sandbox.KeyStore. The error of a hash that is not
// there does not repeat it.
func (s *Store) APIKeyByHash(ctx context.Context, hash string) (keys.APIKey, error) {
	return s.apiKey(ctx, "hash", hash, fault.New(fault.NotFound, "there is no such API key").About("key"))
}

// APIKeys implements sandbox.KeyStore; the oldest comes first.
func (s *Store) APIKeys(ctx context.Context) ([]keys.APIKey, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+apiKeyColumns+" FROM api_keys ORDER BY created_at, rowid")
	list, err := collect(rows, err, apiKeyFields)
	return list, s.fail(ctx, "list API keys", err)
}

// DeleteAPIKey implements sandbox.KeyStore; NotFound when it is not there.
func (s *Store) DeleteAPIKey(ctx context.Context, id string) error {
	return s.transact(ctx, "delete API key", func(tx *sql.Tx) error {
		return one(noAPIKey(id))(tx.ExecContext(ctx, "DELETE FROM api_keys WHERE id=?", id))
	})
}

// TouchAPIKey implements sandbox.KeyStore, as TouchKey does.
func (s *Store) TouchAPIKey(ctx context.Context, id string, at time.Time) error {
	k, err := s.apiKey(ctx, "id", id, noAPIKey(id))
	if err != nil || at.Before(k.LastUsedAt.Add(touchEvery)) {
		return err
	}
	return s.transact(ctx, "touch API key", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE api_keys SET last_used_at=max(last_used_at, ?) WHERE id=?", nanos(at), id)
		return err
	})
}

// apiKey reads the API key whose column has the value.
func (s *Store) apiKey(ctx context.Context, column, value string, missing error) (keys.APIKey, error) {
	var k keys.APIKey
	err := s.read.QueryRowContext(ctx, "SELECT "+apiKeyColumns+" FROM api_keys WHERE "+column+"=?", value).Scan(apiKeyFields(&k)...)
	if errors.Is(err, sql.ErrNoRows) {
		return keys.APIKey{}, missing
	}
	if err != nil {
		return keys.APIKey{}, s.fail(ctx, "read API key", err)
	}
	return k, nil
}

func noAPIKey(id string) error {
	return fault.New(fault.NotFound, "there is no API key %q", id).About("key")
}
