package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// inviteColumns are the columns of invites in the order of inviteFields.
const inviteColumns = "id, principal, role, scope, key_expires_at, hash, uses, used, created_by, created_at, expires_at"

func inviteFields(i *keys.Invite) []any {
	return []any{
		&i.ID, &i.Principal, &i.Role, document{&i.Scope}, instant{&i.KeyExpiresAt}, &i.Hash, &i.Uses, &i.Used,
		&i.CreatedBy, instant{&i.CreatedAt}, instant{&i.ExpiresAt},
	}
}

// AddInvite implements sandbox.InviteStore. Exists when the id or the hash is
// there already.
func (s *Store) AddInvite(ctx context.Context, i keys.Invite) error {
	return s.transact(ctx, "add invitation", func(tx *sql.Tx) error {
		fields := inviteFields(&i)
		_, err := tx.ExecContext(ctx, "INSERT INTO invites ("+inviteColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if taken(err) {
			return fault.Wrap(err, fault.Exists, "the invitation %s exists already", i.ID).About("invite")
		}
		return err
	})
}

// Invites implements sandbox.InviteStore.
func (s *Store) Invites(ctx context.Context) ([]keys.Invite, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+inviteColumns+" FROM invites ORDER BY created_at, rowid")
	list, err := collect(rows, err, inviteFields)
	return list, s.fail(ctx, "list invitations", err)
}

// DeleteInvite implements sandbox.InviteStore; NotFound when it is not there.
func (s *Store) DeleteInvite(ctx context.Context, id string) error {
	return s.transact(ctx, "delete invitation", func(tx *sql.Tx) error {
		missing := fault.New(fault.NotFound, "there is no invitation %q", id).About("invite")
		return one(missing)(tx.ExecContext(ctx, "DELETE FROM invites WHERE id=?", id))
	})
}

// Redeem implements sandbox.InviteStore. makeKey is called once.
func (s *Store) Redeem(ctx context.Context, hash string, now time.Time, makeKey func(keys.Invite) keys.Key) (keys.Key, error) {
	var k keys.Key
	err := s.transact(ctx, "redeem invitation", func(tx *sql.Tx) error {
		missing := fault.New(fault.NotFound, "there is no such invitation").About("invite")
		var i keys.Invite
		err := tx.QueryRowContext(ctx, "SELECT "+inviteColumns+" FROM invites WHERE hash=?", hash).Scan(inviteFields(&i)...)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !i.Open(now) {
			return missing
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE invites SET used=used+1 WHERE id=?", i.ID); err != nil {
			return err
		}
		k = makeKey(i)
		return insertKey(ctx, tx, k)
	})
	if err != nil {
		return keys.Key{}, err
	}
	return k, nil
}
