package sandbox

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// unknownKey is the one answer to every credential nobody has registered.
func unknownKey() error { return fault.New(fault.NotFound, "this key is not registered").About("key") }

// AuthenticateKey returns whom a public key, proven by the caller, belongs to.
// NotFound for a key that is unknown, Denied for one that has expired.
func (e *Engine) AuthenticateKey(ctx context.Context, fingerprint, door string) (keys.Principal, error) {
	k, err := e.cfg.Store.Key(ctx, fingerprint)
	if fault.Is(err, fault.NotFound) {
		return keys.Principal{}, unknownKey()
	}
	if err != nil {
		return keys.Principal{}, err
	}
	if err := e.revoked(k); err != nil {
		return keys.Principal{}, err
	}
	p, err := keys.Authenticate(k, door, e.cfg.Now())
	if err != nil {
		return keys.Principal{}, fault.Wrap(err, fault.Denied, "this key has expired").About("key")
	}
	return p, nil
}

// RegisteredKey returns the record of a public key, for doors that need more of
// it than whom it belongs to.
func (e *Engine) RegisteredKey(ctx context.Context, fingerprint string) (keys.Key, error) {
	k, err := e.cfg.Store.Key(ctx, fingerprint)
	if fault.Is(err, fault.NotFound) {
		return keys.Key{}, unknownKey()
	}
	return k, err
}

// AuthenticateCertificate returns whom a certificate stands for whose holder
// has the key it was made for; the caller has proof of that. Denied, with the
// reason, for one that is not accepted.
func (e *Engine) AuthenticateCertificate(_ context.Context, cert *ssh.Certificate, door string) (keys.Principal, error) {
	if e.cfg.Trust == nil {
		return keys.Principal{}, fault.New(fault.Denied, "certificates are not accepted; offer the plain key (ssh -o CertificateFile=none)").About("key")
	}
	p, err := e.cfg.Trust.Authenticate(cert, door, e.cfg.Now())
	if err != nil {
		return keys.Principal{}, fault.Wrap(err, fault.Denied, "this certificate is not accepted: %v", err).About("key")
	}
	return p, nil
}

// revoked refuses a key that is on the list of revoked keys.
func (e *Engine) revoked(k keys.Key) error {
	if e.cfg.Trust == nil {
		return nil
	}
	if err := e.cfg.Trust.CheckKey(k.PublicKey); err != nil {
		return fault.Wrap(err, fault.Denied, "this key cannot be used: %v", err).About("key")
	}
	return nil
}

// Recheck says whether the credential that proved a principal still opens the
// door: it may have been deleted or have expired since. The unix socket's
// operator has none and is always welcome.
func (e *Engine) Recheck(ctx context.Context, p keys.Principal) error {
	var now keys.Principal
	var err error
	switch {
	case p.Certificate != (keys.Certificate{}):
		return e.recheckCertificate(p)
	case p.KeyID == "":
		return nil
	case strings.HasPrefix(p.KeyID, prefixAPIKey+"_"):
		all, lerr := e.cfg.Store.APIKeys(ctx)
		if lerr != nil {
			return lerr
		}
		i := slices.IndexFunc(all, func(k keys.APIKey) bool { return k.ID == p.KeyID })
		if i < 0 {
			return unknownKey()
		}
		now, err = keys.AuthenticateAPI(all[i], p.Door, e.cfg.Now())
	default:
		return e.recheckKey(ctx, p)
	}
	if err != nil || now.ID != p.ID || now.Role != p.Role || !now.Scope.Equal(p.Scope) {
		return fault.Wrap(err, fault.Denied, "this API key has expired").About("key")
	}
	return nil
}

func (e *Engine) recheckKey(ctx context.Context, p keys.Principal) error {
	now, err := e.AuthenticateKey(ctx, p.KeyID, p.Door)
	if err != nil {
		return err
	}
	if now.ID != p.ID || now.Role != p.Role || !now.Scope.Equal(p.Scope) {
		return fault.New(fault.Denied, "the rights of this key have changed; connect again").About("key")
	}
	return nil
}

func (e *Engine) recheckCertificate(p keys.Principal) error {
	if e.cfg.Trust == nil {
		return unknownKey()
	}
	if err := e.cfg.Trust.Recheck(p, e.cfg.Now()); err != nil {
		return fault.Wrap(err, fault.Denied, "this certificate is no longer accepted: %v", err).About("key")
	}
	return nil
}

// KeyUsed notes that a public key has opened a door.
func (e *Engine) KeyUsed(ctx context.Context, fingerprint string) {
	if err := e.cfg.Store.TouchKey(ctx, fingerprint, e.cfg.Now()); err != nil && ctx.Err() == nil {
		e.cfg.Log.Warn("note the use of a key", "key", fingerprint, "err", err)
	}
}

// AuthenticateSecret returns whom an API key belongs to.
func (e *Engine) AuthenticateSecret(ctx context.Context, secret, door string) (keys.Principal, error) {
	k, err := e.cfg.Store.APIKeyByHash(ctx, keys.HashSecret(secret))
	if fault.Is(err, fault.NotFound) {
		return keys.Principal{}, fault.New(fault.Denied, "this API key is not registered").About("key")
	}
	if err != nil {
		return keys.Principal{}, err
	}
	now := e.cfg.Now()
	p, err := keys.AuthenticateAPI(k, door, now)
	if err != nil {
		return keys.Principal{}, fault.Wrap(err, fault.Denied, "this API key has expired").About("key")
	}
	if now.Sub(k.LastUsedAt) > time.Minute {
		if err := e.cfg.Store.TouchAPIKey(ctx, k.ID, now); err != nil {
			e.cfg.Log.Warn("note the use of an API key", "key", k.ID, "err", err)
		}
	}
	return p, nil
}

// mayGrant checks that the actor may make a key for a principal, in a role, with
// a scope: an admin for anyone, a member for themselves as a member, and each
// within what their own key may do. It fills in what was left open.
func (a *Actor) mayGrant(op operation, principal *string, role *keys.Role, expires *time.Time, scope *keys.Scope) error {
	if err := a.allow(op); err != nil {
		return err
	}
	// What a credential makes does not outlive it.
	if limit := a.who.Expires; !limit.IsZero() && (expires.IsZero() || expires.After(limit)) {
		*expires = limit
	}
	if *principal == "" {
		*principal = a.who.ID
	}
	if *role == "" {
		*role = keys.Member
		if *principal == a.who.ID {
			*role = a.who.Role
		}
	}
	if *role != keys.Admin && *role != keys.Member {
		return fault.InvalidField("role", "%q is not a role: use admin or member", clip(string(*role), 32))
	}
	if *principal != a.who.ID && !keys.ValidPrincipal(*principal) {
		return fault.InvalidField("principal", "%q is not a name: use 1 to 32 lower-case letters, digits, dots, hyphens and underscores", clip(*principal, 64))
	}
	if err := a.narrow(*principal, scope); err != nil {
		return err
	}
	if a.who.IsAdmin() {
		return nil
	}
	if a.who.ID == "" || *principal != a.who.ID || *role != keys.Member {
		return fault.New(fault.Denied, "only an admin can add a key for somebody else or for an admin").About("key")
	}
	return nil
}

// narrow checks the scope of a new key against that of the actor's own, which it
// inherits where it says nothing.
func (a *Actor) narrow(principal string, scope *keys.Scope) error {
	own := a.who.Scope
	if a.who.Limits != (keys.SessionLimits{}) {
		return fault.New(fault.Denied, "the certificate %s limits what a session may do, and makes no keys, which would not be limited so", a.keyName()).About("key")
	}
	if own.IsZero() {
		return nil
	}
	*scope = own.Inherit(*scope)
	switch {
	case principal != a.who.ID:
		return fault.New(fault.Denied, "the key %s has a scope (%s) and makes keys for nobody else", a.keyName(), own).About("key")
	case !own.Contains(*scope):
		return fault.New(fault.Denied, "the key %s cannot give more than it has (%s)", a.keyName(), own).About("key")
	}
	return nil
}

// holds reports whether the actor may see a credential: an admin any, a member
// their own, and nobody one of their own that may do more than the one they
// came with.
func (a *Actor) holds(principal string, role keys.Role, scope keys.Scope) bool {
	if principal == a.who.ID && a.who.ID != "" {
		return a.who.Scope.Contains(scope) && (role != keys.Admin || a.who.IsAdmin())
	}
	return a.who.IsAdmin() && a.who.Scope.IsZero()
}

// mayRemove refuses a member to remove a credential that holds for longer than
// the one they came with: what is about to end, or was lent, takes nothing along.
func (a *Actor) mayRemove(id string, expires time.Time) error {
	limit := a.who.Expires
	if a.who.IsAdmin() || limit.IsZero() || id == a.who.KeyID || !expires.IsZero() && !expires.After(limit) {
		return nil
	}
	return fault.New(fault.Denied, "the key %s expires before the one it was to remove; use one that holds as long", a.keyName()).About("key")
}

// AddKey registers a public key.
func (a *Actor) AddKey(ctx context.Context, k keys.Key) (_ keys.Key, err error) {
	defer func() { a.changed("key add", AuditRecord{Target: k.Fingerprint, Owner: k.Principal}, err) }()
	if err := a.mayGrant("AddKey", &k.Principal, &k.Role, &k.ExpiresAt, &k.Scope); err != nil {
		return k, err
	}
	now := a.e.cfg.Now()
	if !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now) {
		return k, fault.InvalidField("expires", "is in the past")
	}
	k.CreatedAt, k.LastUsedAt = now, time.Time{}
	if err := a.e.cfg.Store.AddKey(ctx, k); err != nil {
		return k, err
	}
	a.e.cfg.Log.Info("key added", "key", k.Fingerprint, "user", k.Principal, "role", k.Role, "by", a.who.ID)
	return k, nil
}

// ListKeys returns the keys the actor may see.
func (a *Actor) ListKeys(ctx context.Context) ([]keys.Key, error) {
	if err := a.allow("ListKeys"); err != nil {
		return nil, err
	}
	all, err := a.e.cfg.Store.Keys(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(k keys.Key) bool { return !a.holds(k.Principal, k.Role, k.Scope) }), nil
}

// DeleteKey removes a public key. Connections that it opened go on.
func (a *Actor) DeleteKey(ctx context.Context, fingerprint string) (err error) {
	var k keys.Key
	defer func() { a.changed("key delete", AuditRecord{Target: fingerprint, Owner: k.Principal}, err) }()
	if err := a.allow("DeleteKey"); err != nil {
		return err
	}
	missing := fault.New(fault.NotFound, "no key %q; `key list` shows them", clip(fingerprint, 80)).About("key")
	k, err = a.e.cfg.Store.Key(ctx, fingerprint)
	if fault.Is(err, fault.NotFound) || (err == nil && !a.holds(k.Principal, k.Role, k.Scope)) {
		return missing
	}
	if err == nil {
		err = a.mayRemove(fingerprint, k.ExpiresAt)
	}
	if err != nil {
		return err
	}
	if err := a.e.cfg.Store.DeleteKey(ctx, fingerprint); err != nil {
		return err
	}
	a.e.cfg.Log.Info("key deleted", "key", fingerprint, "user", k.Principal, "by", a.who.ID)
	return nil
}

// AddAPIKey makes an API key; its secret is in the answer and nowhere else.
func (a *Actor) AddAPIKey(ctx context.Context, k keys.APIKey) (_ keys.APIKey, _ string, err error) {
	defer func() { a.changed("api-key add", AuditRecord{Target: k.ID, Owner: k.Principal}, err) }()
	if err := a.mayGrant("AddAPIKey", &k.Principal, &k.Role, &k.ExpiresAt, &k.Scope); err != nil {
		return k, "", err
	}
	if len(k.Name) > 64 {
		return k, "", fault.InvalidField("name", "longer than 64 bytes")
	}
	now := a.e.cfg.Now()
	if !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now) {
		return k, "", fault.InvalidField("expires", "is in the past")
	}
	secret := keys.NewSecret()
	k.ID, k.Hash, k.CreatedAt, k.LastUsedAt = a.e.cfg.NewID(prefixAPIKey), keys.HashSecret(secret), now, time.Time{}
	if err := a.e.cfg.Store.AddAPIKey(ctx, k); err != nil {
		return k, "", err
	}
	a.e.cfg.Log.Info("API key added", "key", k.ID, "user", k.Principal, "role", k.Role, "by", a.who.ID)
	return k, secret, nil
}

// ListAPIKeys returns the API keys the actor may see.
func (a *Actor) ListAPIKeys(ctx context.Context) ([]keys.APIKey, error) {
	if err := a.allow("ListAPIKeys"); err != nil {
		return nil, err
	}
	return a.apiKeys(ctx)
}

func (a *Actor) apiKeys(ctx context.Context) ([]keys.APIKey, error) {
	all, err := a.e.cfg.Store.APIKeys(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(k keys.APIKey) bool { return !a.holds(k.Principal, k.Role, k.Scope) }), nil
}

// DeleteAPIKey removes an API key.
func (a *Actor) DeleteAPIKey(ctx context.Context, id string) (err error) {
	owner := ""
	defer func() { a.changed("api-key delete", AuditRecord{Target: id, Owner: owner}, err) }()
	if err := a.allow("DeleteAPIKey"); err != nil {
		return err
	}
	visible, err := a.apiKeys(ctx)
	if err != nil {
		return err
	}
	for _, k := range visible {
		if k.ID == id {
			owner = k.Principal
			if err := a.mayRemove(id, k.ExpiresAt); err != nil {
				return err
			}
			a.e.cfg.Log.Info("API key deleted", "key", id, "user", k.Principal, "by", a.who.ID)
			return a.e.cfg.Store.DeleteAPIKey(ctx, id)
		}
	}
	return fault.New(fault.NotFound, "no API key %q; `key api list` shows them", clip(id, 64)).About("key")
}
