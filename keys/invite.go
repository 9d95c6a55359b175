package keys

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
	"time"
)

// InvitePrefix begins every code of an invitation.
const InvitePrefix = "sgi_"

// inviteChars is how many characters follow the prefix: base32 of 128 bits.
const inviteChars = 26

// Invite lets somebody register a public key of their own. Its code is shown
// once, when it is made, and kept only as a hash.
type Invite struct {
	ID        string `json:"id"`        // "inv_…"
	Principal string `json:"principal"` // whose keys it registers
	Role      Role   `json:"role"`
	Scope     Scope  `json:"scope,omitzero"` // of these keys
	// KeyExpiresAt is when these keys expire; zero: never.
	KeyExpiresAt time.Time `json:"keyExpiresAt,omitzero"`
	Hash         string    `json:"-"` // hex SHA-256 of the code
	Uses         int       `json:"uses"`
	Used         int       `json:"used"`
	CreatedBy    string    `json:"createdBy"`
	CreatedAt    time.Time `json:"createdAt"`
	ExpiresAt    time.Time `json:"expiresAt"`
}

// Open reports whether the invitation can be used at now.
func (i Invite) Open(now time.Time) bool { return i.Used < i.Uses && now.Before(i.ExpiresAt) }

// NewInviteCode makes the code of an invitation: the prefix and 26 characters
// of base32 that carry 128 random bits.
func NewInviteCode() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails: crypto/rand ends the program instead
	return InvitePrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// ParseInviteCode reads a code as people give it: with blanks around it, in
// capitals. ok is false for what can be none. A good form says nothing about
// whether there is such an invitation.
func ParseInviteCode(s string) (code string, ok bool) {
	if len(s) > 256 {
		return "", false
	}
	code = strings.ToLower(strings.TrimSpace(s))
	rest, found := strings.CutPrefix(code, InvitePrefix)
	if !found || len(rest) != inviteChars {
		return "", false
	}
	for i := range len(rest) {
		if c := rest[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return "", false
		}
	}
	return code, true
}
