package egress

import (
	"fmt"
	"strings"

	"golang.org/x/net/idna"
)

// CanonicalName returns the form in which names are compared: lower case, no
// dot at the end, international labels in their ASCII form. It reports false
// for what is no name of a host, addresses among them.
func CanonicalName(name string) (string, bool) {
	c, err := canonical(name)
	return c, err == nil
}

// names maps case and width as browsers do. What else it would refuse is
// checked below: names with an underscore exist.
var names = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false))

func canonical(name string) (string, error) {
	if len(name) > 4*253 {
		return "", fmt.Errorf("the name is too long")
	}
	c := strings.TrimSuffix(name, ".")
	if ascii(c) && !strings.Contains(strings.ToLower(c), "xn--") {
		c = strings.ToLower(c)
	} else {
		mapped, err := names.ToASCII(c)
		if err != nil {
			return "", fmt.Errorf("%.80q is no name of a host: %w", name, err)
		}
		// The form has to be one that maps to itself, or the same name would
		// compare as two.
		c = strings.TrimSuffix(mapped, ".")
		if again, err := names.ToASCII(c); err != nil || again != c {
			return "", fmt.Errorf("%.80q is no name of a host", name)
		}
	}
	if len(c) > 253 {
		return "", fmt.Errorf("the name is too long")
	}
	rest := c
	for more := true; more; {
		var label string
		label, rest, more = strings.Cut(rest, ".")
		if !validLabel(label) {
			return "", fmt.Errorf("%.80q is no name of a host", name)
		}
		if !more && numeric(label) {
			return "", fmt.Errorf("%.80q is neither an address nor a name", name)
		}
	}
	return c, nil
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func validLabel(l string) bool {
	if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	for i := range len(l) {
		switch c := l[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
