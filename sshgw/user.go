package sshgw

import (
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxRef bounds the parts of a user name.
const maxRef = 64

// idPrefix begins every sandbox id.
const idPrefix = "sbx_"

// controlUser is the user name that can only mean the control account: no
// sandbox can be called that.
const controlUser = "sandgate"

// target is what a user name asks for. The zero value is the control account.
type target struct {
	ref     string // a sandbox id, or what may be a sandbox's name
	isID    bool   // ref is an id
	session string // the named session, "" for none
}

// sure reports whether the target can only be a sandbox.
func (t target) sure() bool { return t.isID || t.session != "" }

// parseUser reads a user name by the rules of the package comment. The error
// is for a name that can only be meant for a sandbox and is malformed.
func parseUser(user string) (target, error) {
	ref, session, plus := strings.Cut(user, "+")
	isID := strings.HasPrefix(ref, idPrefix)
	switch {
	case isID && !isWord(ref[len(idPrefix):], isLowerAlnum):
		return target{}, fault.InvalidField("user", "that is no sandbox id; ids look like sbx_4k2m7qxw3f5z")
	case !isID && !isWord(ref, isNameByte):
		// A login name no sandbox can have ("DOM\\user", "", "a b").
		return target{}, nil
	case plus && !isWord(session, isNameByte):
		return target{}, fault.InvalidField("user", "what follows the + must be a session's name of at most %d letters, digits, '.', '_' and '-'", maxRef)
	}
	return target{ref: ref, isID: isID, session: session}, nil
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
