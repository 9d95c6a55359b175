package keys

import (
	"fmt"
	"strings"
)

// Names that Sandgate uses itself and nobody can be given.
const (
	// LocalPrincipal is the operator who reaches the server's unix socket.
	LocalPrincipal = "local"
	// SystemPrincipal is the server itself, in events.
	SystemPrincipal = "system"
)

// maxPrincipal is the longest name of a principal in bytes.
const maxPrincipal = 32

// ParseRole reads the name of a role.
func ParseRole(s string) (Role, error) {
	switch r := Role(s); r {
	case Admin, Member:
		return r, nil
	}
	return "", fmt.Errorf("%q is not a role: use admin or member", clip(s, 32))
}

// ValidPrincipal reports whether name can be the id of a principal: 1 to 32 of
// a-z, 0-9, '.', '_' and '-', starting with a letter or a digit, and not the
// server's own name.
func ValidPrincipal(name string) bool {
	if name == "" || len(name) > maxPrincipal || name == SystemPrincipal {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// PrincipalFromComment derives the name of a principal from the comment of a
// public key: "alice@laptop" gives "alice". It gives "" when the comment names
// nobody who could be a principal; the name is a proposal, for the comment is
// whatever its author wrote.
func PrincipalFromComment(comment string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(comment), "@")
	if _, user, windows := strings.Cut(name, `\`); windows { // DOMAIN\user
		name = user
	}
	name = strings.ToLower(name)
	if !ValidPrincipal(name) || name == LocalPrincipal {
		return ""
	}
	return name
}

// clip bounds a string that came from outside before it is quoted in a message.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
