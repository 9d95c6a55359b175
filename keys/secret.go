package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// SecretPrefix begins every secret of an API key, so that people and scanners
// of leaked secrets know one when they see it.
const SecretPrefix = "sgk_"

// NewSecret makes the secret of an API key: the prefix and 40 characters of
// base32 that carry 200 random bits.
func NewSecret() string {
	b := make([]byte, 25)
	rand.Read(b) // never fails: crypto/rand ends the program instead
	return SecretPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

// HashSecret returns what is kept of a secret: the hex SHA-256. A secret has
// too many random bits to be guessed, so it needs no slow hash and no salt, and
// the hash can be looked up by an index.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// MatchSecret reports whether secret is the one that hash was made from, in a
// time that does not depend on how much of it is right.
func MatchSecret(hash, secret string) bool {
	return subtle.ConstantTimeCompare([]byte(hash), []byte(HashSecret(secret))) == 1
}
