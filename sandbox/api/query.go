package api

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// query reads query parameters, and names the parameter when one is wrong.
type query struct{ url.Values }

// number reads a number that is not negative.
func (q query) number(name string, def int) (int, error) {
	s := q.Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, fault.InvalidField(name, "%q is not a number of 0 or more", clip(s))
	}
	return int(n), nil
}

// limit reads how many results are asked for; 50 when it is not said.
func (q query) limit(most int) (int, error) {
	n, err := q.number("limit", 50)
	if err == nil && (n < 1 || n > most) {
		err = fault.InvalidField("limit", "must be 1 to %d", most)
	}
	return n, err
}

func (q query) boolean(name string) (value, given bool, err error) {
	switch s := q.Get(name); s {
	case "":
		return false, false, nil
	case "true", "1":
		return true, true, nil
	case "false", "0":
		return false, true, nil
	default:
		return false, false, fault.InvalidField(name, "%q is neither true nor false", clip(s))
	}
}

// list reads a parameter whose values are separated by commas.
func (q query) list(name string) []string {
	var out []string
	for _, v := range q.Values[name] {
		for s := range strings.SplitSeq(v, ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

// ascending reads the direction of a sort.
func (q query) ascending(def bool) (bool, error) {
	switch s := q.Get("direction"); s {
	case "":
		return def, nil
	case "asc":
		return true, nil
	case "desc":
		return false, nil
	default:
		return false, fault.InvalidField("direction", "%q is not a direction: use asc or desc", clip(s))
	}
}

// clip shortens what a client sent for a message.
func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
