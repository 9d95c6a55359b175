// Package keys knows who may come in: registered public keys, the principals
// they belong to, their roles, API keys, and the host keys by which the server
// proves who it is itself. It imports nothing else of ours and touches no
// network and no database: package store keeps its records, and package
// keys/github fetches what people publish there. Files it reads and writes are
// host keys and, when asked to, the public keys of the user who runs it.
//
// Everything that is parsed here comes from strangers: sizes and counts are
// bounded, and reasons never repeat what could be a secret pasted by mistake.
package keys

import (
	"strings"
	"time"
)

// Role is what a principal may do at large.
type Role string

// The roles.
const (
	Admin  Role = "admin"  // everything, on every sandbox
	Member Role = "member" // everything, on sandboxes of their own
)

// Principal is who acts: the result of authentication, the subject of every
// authorization. A Principal is a plain value; it is made anew for each
// connection and never trusted from a client.
type Principal struct {
	// ID names the principal for ever; it owns sandboxes. "local" is the
	// operator who reaches the server's unix socket.
	ID   string
	Role Role
	// KeyID is the fingerprint or API key id that proved the identity; empty
	// for the unix socket.
	KeyID string
	// Door is how they came: "ssh", "http", "socket". For the log.
	Door string
	// Expires is when the key behind KeyID stops to prove anything; zero:
	// never. What the principal makes on the strength of that key must not
	// outlive it.
	Expires time.Time
	// Scope is what the key behind KeyID may be used for.
	Scope Scope
	// Certificate says which certificate proved the identity; zero without.
	Certificate Certificate
	// NoTouch accepts the signature of a security key that nobody has touched.
	NoTouch bool
	// Limits are what the certificate, or the options of the key, take away
	// from an ssh session.
	Limits SessionLimits
}

// SessionLimits are restrictions of ssh sessions alone. The zero value
// restricts nothing.
type SessionLimits struct {
	NoPTY   bool   `json:"noPty,omitempty"`
	NoAgent bool   `json:"noAgent,omitempty"` // no agent forwarding
	Command string `json:"command,omitempty"` // runs instead of whatever is asked for
}

// IsAdmin reports whether the principal has the admin role.
func (p Principal) IsAdmin() bool { return p.Role == Admin }

// Key is one registered public key.
type Key struct {
	Fingerprint string `json:"fingerprint"` // "SHA256:…", as ssh-keygen -l prints it; the key's id
	Type        string `json:"type"`        // "ssh-ed25519", …
	PublicKey   string `json:"publicKey"`   // "ssh-ed25519 AAAA…", without comment
	Comment     string `json:"comment,omitempty"`
	Principal   string `json:"principal"` // whose key this is
	Role        Role   `json:"role"`
	Scope       Scope  `json:"scope,omitzero"`
	// NoTouch accepts signatures of a security key that nobody has touched.
	NoTouch    bool      `json:"noTouch,omitempty"`
	CreatedAt  time.Time `json:"createdAt"`
	ExpiresAt  time.Time `json:"expiresAt,omitzero"`  // zero: never
	LastUsedAt time.Time `json:"lastUsedAt,omitzero"` // zero: never
}

// SecurityKey reports whether the key lives in a FIDO authenticator.
func (k Key) SecurityKey() bool { return strings.HasPrefix(k.Type, "sk-") }

// Expired reports whether the key has expired at now.
func (k Key) Expired(now time.Time) bool { return expired(k.ExpiresAt, now) }

// APIKey is one key for the HTTP API over TCP. Its secret is shown once, when
// it is made, and kept only as a hash.
type APIKey struct {
	ID         string    `json:"id"` // "key_…"
	Name       string    `json:"name,omitempty"`
	Principal  string    `json:"principal"`
	Role       Role      `json:"role"`
	Scope      Scope     `json:"scope,omitzero"`
	Hash       string    `json:"-"` // hex SHA-256 of the secret
	CreatedAt  time.Time `json:"createdAt"`
	ExpiresAt  time.Time `json:"expiresAt,omitzero"`
	LastUsedAt time.Time `json:"lastUsedAt,omitzero"`
}

// Expired reports whether the API key has expired at now.
func (k APIKey) Expired(now time.Time) bool { return expired(k.ExpiresAt, now) }

func expired(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }
