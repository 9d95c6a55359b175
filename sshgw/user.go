package sshgw

import (
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Bounds of the parts of a user name. Accounts of Linux have at most 32 bytes.
const (
	maxRef     = 64
	maxAccount = 32
)

// idPrefix begins every sandbox id.
const idPrefix = "sbx_"

// controlUser is the user name that can only mean the control account: no
// sandbox can be called that.
const controlUser = "sandgate"

// rootUser is the part of a user name that asks for the user root of the
// sandbox; no session is reached under that name.
const rootUser = "root"

// target is what a user name asks for. The zero value is the control account.
type target struct {
	ref     string // a sandbox id, or what may be a sandbox's name
	isID    bool   // ref is an id
	session string // the named session, "" for none
	account string // the user inside the sandbox, "" for its default
}

// sure reports whether the target can only be a sandbox.
func (t target) sure() bool { return t.isID || t.session != "" || t.account != "" }

// parseUser reads a user name by the rules of the package comment. The error
// is for a name that can only be meant for a sandbox and is malformed.
func parseUser(user string) (target, error) {
	ref, rest, plus := strings.Cut(user, "+")
	t := target{ref: ref}
	if meansID(ref) {
		t.isID, t.ref = true, strings.ToLower(ref)
	}
	switch {
	case t.isID && !isWord(ref[len(idPrefix):], isAlnum):
		return target{}, fault.InvalidField("user", "that is no sandbox id; ids look like sbx_4k2m7qxw3f5z")
	case !t.isID && !isWord(ref, isNameByte) && plus:
		return target{}, fault.InvalidField("user", "what comes before the + must be the id or the name of a sandbox: ssh -t <sandbox>+<session>@<gateway>")
	case !t.isID && !isWord(ref, isNameByte):
		// A login name no sandbox can have ("DOM\\user", "", "a b").
		return target{}, nil
	}
	for plus {
		var part string
		part, rest, plus = strings.Cut(rest, "+")
		if err := t.add(part); err != nil {
			return target{}, err
		}
	}
	return t, nil
}

// meansID reports whether a sandbox is meant by its id, in whatever case: what
// is an id never leads to the control account.
func meansID(ref string) bool {
	return len(ref) >= len(idPrefix) && strings.EqualFold(ref[:len(idPrefix)], idPrefix)
}

// add takes one of the parts that follow a +.
func (t *target) add(part string) error {
	name, other := strings.CutPrefix(part, "~")
	if part == rootUser {
		other = true
	}
	switch {
	case other && !isAccount(name):
		return fault.InvalidField("user", "what follows +~ must be a user of the sandbox, by a name or number of at most %d letters, digits, '.', '_' and '-'", maxAccount)
	case other && t.account != "":
		return fault.InvalidField("user", "it names two users of the sandbox; one is enough")
	case other:
		t.account = name
	case !isWord(part, isNameByte):
		return fault.InvalidField("user", "what follows the + must be a session's name of at most %d letters, digits, '.', '_' and '-', or +~ and a user of the sandbox", maxRef)
	case t.session != "":
		return fault.InvalidField("user", "it names two sessions; one connection leads to one (another user of the sandbox is +~name)")
	default:
		t.session = part
	}
	return nil
}

// isAccount reports whether s may be a user inside a sandbox. Some of them
// begin with an underscore.
func isAccount(s string) bool {
	return len(s) <= maxAccount && isWord(strings.TrimPrefix(s, "_"), isNameByte)
}

// isWord reports whether s is 1 to maxRef bytes, all ok, beginning with a
// letter or digit.
func isWord(s string, ok func(byte) bool) bool {
	if s == "" || len(s) > maxRef || !isAlnum(s[0]) {
		return false
	}
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

func isLowerAlnum(b byte) bool { return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' }

func isAlnum(b byte) bool { return isLowerAlnum(b) || 'A' <= b && b <= 'Z' }

func isNameByte(b byte) bool { return isAlnum(b) || b == '.' || b == '_' || b == '-' }
