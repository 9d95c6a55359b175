package egress

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Proto is a transport protocol.
type Proto string

// The protocols rules are about. Nothing else leaves a sandbox.
const (
	TCP Proto = "tcp"
	UDP Proto = "udp"
)

// Rule is one parsed rule.
type Rule struct {
	Proto     Proto
	Name      string       // canonical; empty for an address, and for every name
	Below     bool         // the names below Name, and not Name itself
	Prefix    netip.Prefix // of a rule for addresses; masked
	Low, High uint16       // zero: the ports of the web
}

// maxRuleLength is well above the longest name with everything else.
const maxRuleLength = 512

// ParseRule parses one rule. Errors are fault.Invalid and name the rule.
func ParseRule(text string) (Rule, error) {
	bad := func(format string, args ...any) (Rule, error) {
		return Rule{}, fault.InvalidField(Field, "rule %.80q: %s", text, fmt.Sprintf(format, args...))
	}
	if len(text) > maxRuleLength {
		return bad("is too long")
	}
	rest := strings.TrimSpace(text)
	r := Rule{Proto: TCP}
	if proto, after, ok := strings.Cut(rest, ":"); ok {
		switch strings.ToLower(proto) {
		case "udp":
			r.Proto, rest = UDP, after
		case "tcp":
			rest = after
		case "http", "https":
			return bad("is a URL; write the name alone, such as %q", "github.com:443")
		}
	}
	host, port, err := splitPort(rest)
	if err != nil {
		return bad("%v", err)
	}
	if r.Low, r.High, err = parsePorts(port); err != nil {
		return bad("%v", err)
	}
	if r.Proto == UDP && r.Low == 0 {
		return bad("needs a port, such as %q", "udp:"+host+":53")
	}
	if host == "" {
		return bad("names no host; write a name, an address or a network, and a port after a colon")
	}
	if looksLikeAddress(host) {
		if r.Prefix, err = parsePrefix(host); err != nil {
			return bad("%v", err)
		}
		return r, nil
	}
	if host == "*" {
		r.Below = true
		return r, nil
	}
	name, below := strings.CutPrefix(host, "*.")
	if strings.Contains(name, "*") {
		return bad("a * can only stand for whole labels at the beginning, as in %q", "*.npmjs.org")
	}
	if r.Name, err = canonical(name); err != nil {
		return bad("%v", err)
	}
	r.Below = below
	return r, nil
}

// splitPort cuts "host:port", "[host]:port" and a host without a port. An IPv6
// address without brackets has no port.
func splitPort(s string) (host, port string, err error) {
	if after, ok := strings.CutPrefix(s, "["); ok {
		host, rest, ok := strings.Cut(after, "]")
		if !ok {
			return "", "", fmt.Errorf("the bracket is not closed")
		}
		if !strings.Contains(host, ":") {
			return "", "", fmt.Errorf("brackets are for IPv6 addresses")
		}
		if rest == "" {
			return host, "", nil
		}
		port, ok := strings.CutPrefix(rest, ":")
		if !ok || port == "" {
			return "", "", fmt.Errorf("after the bracket a colon and a port may follow")
		}
		return host, port, nil
	}
	if strings.Count(s, ":") > 1 {
		return s, "", nil
	}
	host, port, ok := strings.Cut(s, ":")
	if ok && port == "" {
		return "", "", fmt.Errorf("the port after the colon is missing")
	}
	return host, port, nil
}

// parsePorts parses "22", "8000-8100" and "*"; nothing gives zeros.
func parsePorts(s string) (low, high uint16, err error) {
	if s == "" {
		return 0, 0, nil
	}
	if s == "*" {
		return 1, 65535, nil
	}
	from, to, ranged := strings.Cut(s, "-")
	if !ranged {
		to = from
	}
	if low, err = parsePort(from); err != nil {
		return 0, 0, err
	}
	if high, err = parsePort(to); err != nil {
		return 0, 0, err
	}
	if low > high {
		return 0, 0, fmt.Errorf("the range of ports %s ends before it begins", s)
	}
	return low, high, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' {
		return 0, fmt.Errorf("%.20q is no port; a port is a number from 1 to 65535, a range such as 8000-8100, or *", s)
	}
	return uint16(n), nil
}

// looksLikeAddress tells addresses, well-formed or not, from names: a name has
// no colon and no slash, and its last label is no number.
func looksLikeAddress(host string) bool {
	if strings.ContainsAny(host, ":/") {
		return true
	}
	host = strings.TrimSuffix(host, ".")
	return numeric(host[strings.LastIndexByte(host, '.')+1:])
}

func numeric(label string) bool {
	if label == "" {
		return false
	}
	if hex, ok := strings.CutPrefix(strings.ToLower(label), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%.80q is no address", s)
		}
		if addr.Is4In6() {
			return netip.Prefix{}, fmt.Errorf("write the IPv4 address %s as such", addr.Unmap())
		}
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%.80q is no network; write one such as 10.1.0.0/16", s)
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("write the IPv4 network as such")
	}
	if prefix != prefix.Masked() {
		return netip.Prefix{}, fmt.Errorf("%s has bits behind the slash; did you mean %s or %s", s, prefix.Masked(), prefix.Addr())
	}
	return prefix, nil
}

// permitted refuses rules that could never match, or whose author lacks the
// right to write them.
func (r Rule) permitted(private bool) error {
	if !r.Prefix.IsValid() {
		return nil
	}
	why, reserved := reservedPrefix(r.Prefix)
	switch {
	case !reserved:
		return nil
	case !openable(r.Prefix):
		return fault.InvalidField(Field, "rule %q: %s cannot be opened to a sandbox", r, why)
	case !private:
		return fault.InvalidField(Field, "rule %q: only an admin can open %s", r, why)
	}
	return nil
}

// ports lists what the rule covers.
func (r Rule) ports() []ports {
	if r.Low == 0 {
		return []ports{{r.Proto, 80, 80}, {r.Proto, 443, 443}}
	}
	return []ports{{r.Proto, r.Low, r.High}}
}

// String returns the canonical form, which parses to the same rule.
func (r Rule) String() string {
	var b strings.Builder
	if r.Proto == UDP {
		b.WriteString("udp:")
	}
	switch {
	case r.Prefix.IsValid():
		host := r.Prefix.String()
		if r.Prefix.IsSingleIP() {
			host = r.Prefix.Addr().String()
		}
		if r.Prefix.Addr().Is6() {
			host = "[" + host + "]"
		}
		b.WriteString(host)
	case r.Below && r.Name == "":
		b.WriteString("*")
	case r.Below:
		b.WriteString("*." + r.Name)
	default:
		b.WriteString(r.Name)
	}
	switch {
	case r.Low == 0:
	case r.Low == 1 && r.High == 65535:
		b.WriteString(":*")
	case r.Low == r.High:
		fmt.Fprintf(&b, ":%d", r.Low)
	default:
		fmt.Fprintf(&b, ":%d-%d", r.Low, r.High)
	}
	return b.String()
}
