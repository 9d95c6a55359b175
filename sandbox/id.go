package sandbox

import (
	"crypto/rand"
	"encoding/base32"
	"regexp"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Prefixes of ids.
const (
	prefixSandbox   = "sbx"
	prefixExecution = "exec"
	prefixEvent     = "evt"
	prefixProcess   = "proc"
	prefixAPIKey    = "key"
	prefixInvite    = "inv"

	prefixSnapshot   = "snp"
	prefixCheckpoint = "ckpt"
	prefixJob        = "job"
	prefixLayer      = "layer"
)

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID makes an id: the prefix, an underscore and 12 characters of lower-case
// base32 (60 random bits), unguessable and without coordination.
func NewID(prefix string) string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return prefix + "_" + idEncoding.EncodeToString(b[:])[:12]
}

// IsID reports whether s looks like a sandbox id. Anything that starts as an
// id does is treated as one, so a name can never shadow an id.
func IsID(s string) bool { return strings.HasPrefix(s, prefixSandbox+"_") }

var (
	nameRule    = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	projectRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	envRule     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// reservedNames mean something else in front of the @ of an ssh command, or
// stand at the place of an id in the paths of the API.
var reservedNames = map[string]bool{
	"join": true, "root": true, "git": true, "sandgate": true,
	"status": true, "execution": true, "sandboxes": true, "runtimes": true, "snapshots": true, "checkpoints": true, "env": true,
}

// ValidateName checks the name of a sandbox. It is used as an ssh user name
// and as a host name, so it has the form of the stricter of the two.
func ValidateName(name string) error {
	if reservedNames[name] {
		return fault.InvalidField("name", "%q is reserved; choose another", name)
	}
	if !nameRule.MatchString(name) {
		return fault.InvalidField("name", "%q is not a name: use 1 to 63 lower-case letters, digits and hyphens, starting with a letter and not ending with a hyphen", clip(name, 64))
	}
	return nil
}

// clip bounds a string that came from outside before it is quoted in a message.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
