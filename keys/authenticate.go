package keys

import (
	"errors"
	"fmt"
	"time"
)

// ErrExpired is matched by the error of a key that has expired.
var ErrExpired = errors.New("the key has expired")

// Authenticate returns the principal that a registered key stands for. The
// caller has proof that whoever is at the door holds the private key, and has
// looked k up by the fingerprint of that very key. door is for the log. The
// only error is one that matches ErrExpired.
func Authenticate(k Key, door string, now time.Time) (Principal, error) {
	if k.Expired(now) {
		return Principal{}, expiredError(k.ExpiresAt)
	}
	return Principal{ID: k.Principal, Role: k.Role, KeyID: k.Fingerprint, Door: door, Expires: k.ExpiresAt, Scope: k.Scope, NoTouch: k.NoTouch}, nil
}

// AuthenticateAPI does the same for an API key that was looked up by the hash
// of its secret.
func AuthenticateAPI(k APIKey, door string, now time.Time) (Principal, error) {
	if k.Expired(now) {
		return Principal{}, expiredError(k.ExpiresAt)
	}
	return Principal{ID: k.Principal, Role: k.Role, KeyID: k.ID, Door: door, Expires: k.ExpiresAt, Scope: k.Scope}, nil
}

func expiredError(at time.Time) error {
	return fmt.Errorf("%w on %s", ErrExpired, at.UTC().Format("2006-01-02 15:04 MST"))
}
