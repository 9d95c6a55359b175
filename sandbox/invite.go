package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Bounds of invitations.
const (
	inviteLife    = 24 * time.Hour // unless something else is asked for
	maxInviteLife = 90 * 24 * time.Hour
	maxInviteUses = 1000
)

// InviteStore keeps invitations. It works as Store does.
type InviteStore interface {
	AddInvite(ctx context.Context, i keys.Invite) error
	// Invites returns all, the oldest first; those that are over too.
	Invites(ctx context.Context) ([]keys.Invite, error)
	DeleteInvite(ctx context.Context, id string) error
	// Redeem counts one use of the invitation with this hash and registers the
	// key that makeKey returns, both or neither. NotFound when no invitation is
	// open under it at now, Exists when the key is registered.
	Redeem(ctx context.Context, hash string, now time.Time, makeKey func(keys.Invite) keys.Key) (keys.Key, error)
}

// InviteOperations are what an Actor can do with invitations. An admin sees and
// changes all, a member those for their own keys.
type InviteOperations interface {
	// CreateInvite makes an invitation and returns its code, once.
	CreateInvite(ctx context.Context, i keys.Invite) (invite keys.Invite, code string, err error)
	Invites(ctx context.Context) ([]keys.Invite, error)
	RevokeInvite(ctx context.Context, id string) error
}

var _ InviteOperations = (*Actor)(nil)

// CreateInvite makes an invitation. Principal, Role, Scope, KeyExpiresAt, Uses
// and ExpiresAt say what it is for.
func (a *Actor) CreateInvite(ctx context.Context, i keys.Invite) (_ keys.Invite, _ string, err error) {
	defer func() { a.changed("invite create", AuditRecord{Target: i.ID, Owner: i.Principal}, err) }()
	now := a.e.cfg.Now()
	if i.ExpiresAt.IsZero() {
		i.ExpiresAt = now.Add(inviteLife)
	}
	switch {
	case !i.ExpiresAt.After(now):
		return i, "", fault.InvalidField("expires", "is in the past")
	case i.ExpiresAt.After(now.Add(maxInviteLife)):
		return i, "", fault.InvalidField("expires", "an invitation is good for at most %s", FormatDuration(maxInviteLife))
	case i.Uses < 0 || i.Uses > maxInviteUses:
		return i, "", fault.InvalidField("uses", "must be 1 to %d", maxInviteUses)
	}
	i.Uses = max(i.Uses, 1)
	if err := a.mayGrant("CreateInvite", &i.Principal, &i.Role, &i.KeyExpiresAt, &i.Scope); err != nil {
		return i, "", err
	}
	if !i.KeyExpiresAt.IsZero() && !i.KeyExpiresAt.After(now) {
		return i, "", fault.InvalidField("keyExpires", "is in the past")
	}
	if !a.who.Expires.IsZero() && i.ExpiresAt.After(a.who.Expires) {
		i.ExpiresAt = a.who.Expires
	}
	code := keys.NewInviteCode()
	i.ID, i.Hash, i.Used, i.CreatedBy, i.CreatedAt = a.e.cfg.NewID(prefixInvite), keys.HashSecret(code), 0, a.who.ID, now
	if err := a.e.cfg.Store.AddInvite(ctx, i); err != nil {
		return i, "", err
	}
	a.e.cfg.Log.Info("invitation made", "invite", i.ID, "user", i.Principal, "role", i.Role, "uses", i.Uses, "by", a.who.ID)
	return i, code, nil
}

// Invites lists the invitations the actor may see.
func (a *Actor) Invites(ctx context.Context) ([]keys.Invite, error) {
	if err := a.allow("Invites"); err != nil {
		return nil, err
	}
	return a.invites(ctx)
}

func (a *Actor) invites(ctx context.Context) ([]keys.Invite, error) {
	all, err := a.e.cfg.Store.Invites(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(i keys.Invite) bool { return !a.holds(i.Principal, i.Role, i.Scope) }), nil
}

// RevokeInvite takes an invitation back. Keys that it has registered stay.
func (a *Actor) RevokeInvite(ctx context.Context, id string) (err error) {
	defer func() { a.changed("invite revoke", AuditRecord{Target: id}, err) }()
	if err := a.allow("RevokeInvite"); err != nil {
		return err
	}
	visible, err := a.invites(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(visible, func(i keys.Invite) bool { return i.ID == id }) {
		return fault.New(fault.NotFound, "no invitation %q; `key invite list` shows them", clip(id, 64)).About("invite")
	}
	a.e.cfg.Log.Info("invitation revoked", "invite", id, "by", a.who.ID)
	return a.e.cfg.Store.DeleteInvite(ctx, id)
}

// Join registers a key that its holder has proven, on the strength of an
// invitation. Denied, always in the same words, when the code opens nothing:
// whether it never existed, has expired or was used up is nobody's business.
// The door bounds how often it is tried.
func (e *Engine) Join(ctx context.Context, code string, k keys.Key) (keys.Key, error) {
	refused := fault.New(fault.Denied, "this code is not good: it is mistyped, has expired or was used").About("invite")
	clean, ok := keys.ParseInviteCode(code)
	if !ok {
		clean = keys.InvitePrefix // looked for all the same: it takes as long
	}
	if err := e.revoked(k); err != nil {
		return keys.Key{}, err
	}
	now, used := e.cfg.Now(), ""
	k, err := e.cfg.Store.Redeem(ctx, keys.HashSecret(clean), now, func(i keys.Invite) keys.Key {
		used = i.ID
		k.Principal, k.Role, k.Scope, k.ExpiresAt = i.Principal, i.Role, i.Scope, i.KeyExpiresAt
		k.CreatedAt, k.LastUsedAt = now, time.Time{}
		return k
	})
	switch {
	case fault.Is(err, fault.NotFound):
		return keys.Key{}, refused
	case err != nil:
		return keys.Key{}, err
	}
	e.changed("invite use", AuditRecord{Principal: k.Principal, Role: string(k.Role), Key: k.Fingerprint, Target: used}, nil)
	e.cfg.Log.Info("key registered by invitation", "key", k.Fingerprint, "user", k.Principal, "role", k.Role)
	return k, nil
}
