package keys

import (
	"fmt"
	"slices"
	"strings"
)

// Verb is a kind of thing that may be done. The set is small and closed, so
// that people can say what a key is for.
type Verb string

// The verbs. Package sandbox says which operation needs which.
const (
	Shell   Verb = "shell"   // terminals, and who is in them
	Exec    Verb = "exec"    // commands and jobs
	Files   Verb = "files"   // read and write files
	Forward Verb = "forward" // ports, sockets and the ssh agent
	Read    Verb = "read"    // output, events, recordings, use of resources
	Create  Verb = "create"  // new sandboxes
	Manage  Verb = "manage"  // pause, resume, update, snapshot, checkpoint, delete
	Keyring Verb = "keys"    // keys, invitations, members of projects
)

// Verbs lists every verb.
func Verbs() []Verb { return []Verb{Shell, Exec, Files, Forward, Read, Create, Manage, Keyring} }

// Bounds of a scope.
const (
	maxScopeList = 64
	maxScopeWord = 64
)

// Scope is what a key may be used for, within what its principal may do. The
// zero value restricts nothing. Make others with [NewScope].
type Scope struct {
	// Sandboxes and Projects fence the key in: only these sandboxes (ids, or
	// names among the principal's own), and those of these projects. Both
	// empty: all.
	Sandboxes []string `json:"sandboxes,omitempty"`
	Projects  []string `json:"projects,omitempty"`
	// Verbs are the kinds of things it may do; empty: all.
	Verbs []Verb `json:"verbs,omitempty"`
	// NoForwarding takes Forward away, whatever Verbs says.
	NoForwarding bool `json:"noForwarding,omitempty"`
}

// NewScope makes a scope of what somebody wrote. The error names what is wrong
// and what is allowed; field is which of the lists is meant: "sandbox",
// "project" or "verbs".
func NewScope(sandboxes, projects, verbs []string, noForwarding bool) (s Scope, field string, err error) {
	s.NoForwarding = noForwarding
	if s.Sandboxes, err = scopeWords(sandboxes); err != nil {
		return Scope{}, "sandbox", err
	}
	if s.Projects, err = scopeWords(projects); err != nil {
		return Scope{}, "project", err
	}
	for _, word := range verbs {
		if !slices.Contains(Verbs(), Verb(word)) {
			return Scope{}, "verbs", fmt.Errorf("%q is not a verb: use %s", clip(word, 32), joinVerbs(Verbs()))
		}
	}
	for _, v := range Verbs() { // in their order, each once
		if slices.Contains(verbs, string(v)) {
			s.Verbs = append(s.Verbs, v)
		}
	}
	if len(s.Verbs) == len(Verbs()) {
		s.Verbs = nil
	}
	return s, "", nil
}

func scopeWords(words []string) ([]string, error) {
	if len(words) > maxScopeList {
		return nil, fmt.Errorf("more than %d of them", maxScopeList)
	}
	for _, w := range words {
		if !scopeWord(w) {
			return nil, fmt.Errorf("%q is neither an id nor a name", clip(w, 64))
		}
	}
	if len(words) == 0 {
		return nil, nil
	}
	sorted := slices.Sorted(slices.Values(words))
	return slices.Compact(sorted), nil
}

func scopeWord(w string) bool {
	if w == "" || len(w) > maxScopeWord {
		return false
	}
	for i := range len(w) {
		c := w[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// IsZero reports whether the scope restricts nothing.
func (s Scope) IsZero() bool { return !s.Fenced() && len(s.Verbs) == 0 && !s.NoForwarding }

// Fenced reports whether the scope is for certain sandboxes alone.
func (s Scope) Fenced() bool { return len(s.Sandboxes) > 0 || len(s.Projects) > 0 }

// Allows reports whether the scope has the verb.
func (s Scope) Allows(v Verb) bool {
	if v == Forward && s.NoForwarding {
		return false
	}
	return len(s.Verbs) == 0 || slices.Contains(s.Verbs, v)
}

// Equal reports whether two scopes are the same.
func (s Scope) Equal(o Scope) bool {
	return slices.Equal(s.Sandboxes, o.Sandboxes) && slices.Equal(s.Projects, o.Projects) &&
		slices.Equal(s.Verbs, o.Verbs) && s.NoForwarding == o.NoForwarding
}

// Contains reports whether all that o allows is allowed by s too. Both are of
// the same principal, for names mean that principal's sandboxes.
func (s Scope) Contains(o Scope) bool {
	if s.Fenced() {
		within := func(list, limit []string) bool {
			return !slices.ContainsFunc(list, func(w string) bool { return !slices.Contains(limit, w) })
		}
		if !o.Fenced() || !within(o.Sandboxes, s.Sandboxes) || !within(o.Projects, s.Projects) {
			return false
		}
	}
	for _, v := range Verbs() {
		if o.Allows(v) && !s.Allows(v) {
			return false
		}
	}
	return true
}

// Inherit fills what o leaves open from s: who has a key with a scope, and asks
// for another without saying more, gets one like it.
func (s Scope) Inherit(o Scope) Scope {
	if !o.Fenced() {
		o.Sandboxes, o.Projects = s.Sandboxes, s.Projects
	}
	if len(o.Verbs) == 0 {
		o.Verbs = s.Verbs
	}
	o.NoForwarding = o.NoForwarding || s.NoForwarding
	return o
}

// String says the scope for a person: "sandbox=dev verbs=shell,exec", and "all"
// when it restricts nothing.
func (s Scope) String() string {
	var parts []string
	if len(s.Sandboxes) > 0 {
		parts = append(parts, "sandbox="+strings.Join(s.Sandboxes, ","))
	}
	if len(s.Projects) > 0 {
		parts = append(parts, "project="+strings.Join(s.Projects, ","))
	}
	if len(s.Verbs) > 0 {
		parts = append(parts, "verbs="+joinVerbs(s.Verbs))
	}
	if s.NoForwarding {
		parts = append(parts, "no-forwarding")
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, " ")
}

func joinVerbs(verbs []Verb) string {
	words := make([]string, len(verbs))
	for i, v := range verbs {
		words[i] = string(v)
	}
	return strings.Join(words, ",")
}
