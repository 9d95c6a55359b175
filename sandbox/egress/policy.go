// Package egress holds the rules for what a sandbox may reach, and the
// decision: pure code, no sockets. Package netd enforces it.
//
// A policy is a list of rules; what no rule allows is refused. A rule is
//
//	github.com               a name, TCP ports 80 and 443
//	github.com:22            a name and a port
//	*.npmjs.org:443          every name below npmjs.org, at any depth; not npmjs.org itself
//	*:22                     every name
//	db.example.com:5000-5010 a range of ports
//	db.example.com:*         every port
//	1.2.3.4                  an address, TCP ports 80 and 443
//	10.1.0.0/16:5432         a network
//	[2001:db8::1]:443        an IPv6 address or network, in brackets when a port follows
//	udp:1.1.1.1:53           UDP; the port is required ("tcp:" may be written, and means nothing)
//
// Names and addresses do not imply each other. A rule for a name allows the
// name: a sandbox that dials an address which the name happens to have is
// refused. A rule for a network allows addresses that the sandbox dials as
// such, without a name.
//
// # Reserved addresses
//
// What is not on the public internet (private, link-local and shared networks,
// loopback, the metadata address) is refused whatever it was called, so a name
// that points there leads nowhere. Private networks alone can be opened: by a
// rule for a network that lies inside of one ("10.1.0.0/16:5432"; never by
// "0.0.0.0/0"), and [Parse] takes such a rule only from somebody with the right
// to write it. Such a rule also lets a name through that is allowed by another
// rule and has an address in that network.
package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// MaxRules is how many rules a policy may have.
const MaxRules = 4096

// Field is the name of the input in the errors of [Parse].
const Field = "allow"

// Policy is what one sandbox may reach. It never changes and may be used by
// many at once. The nil policy allows every public name and address; one
// without rules allows nothing.
type Policy struct {
	rules []Rule
	names map[string][]ports // exact, canonical
	below map[string][]ports // "npmjs.org" for "*.npmjs.org", "" for "*"
	nets  map[netip.Prefix][]ports
	bits  [2][]int // lengths of prefixes that occur, for IPv4 and IPv6
}

// ports is a range of ports of one protocol.
type ports struct {
	proto     Proto
	low, high uint16
}

// Parse makes a policy from rules; nil gives the nil policy. private is the
// right to open private networks. Errors are fault.Invalid and name the rule.
func Parse(allow []string, private bool) (*Policy, error) {
	if allow == nil {
		return nil, nil
	}
	if len(allow) > MaxRules {
		return nil, fault.InvalidField(Field, "%d rules are too many; at most %d are possible", len(allow), MaxRules)
	}
	p := &Policy{names: map[string][]ports{}, below: map[string][]ports{}, nets: map[netip.Prefix][]ports{}}
	for _, text := range allow {
		r, err := ParseRule(text)
		if err != nil {
			return nil, err
		}
		if err := r.permitted(private); err != nil {
			return nil, err
		}
		p.add(r)
	}
	for prefix := range p.nets {
		family := 0
		if prefix.Addr().Is6() {
			family = 1
		}
		if !slices.Contains(p.bits[family], prefix.Bits()) {
			p.bits[family] = append(p.bits[family], prefix.Bits())
		}
	}
	return p, nil
}

func (p *Policy) add(r Rule) {
	p.rules = append(p.rules, r)
	for _, ps := range r.ports() {
		switch {
		case r.Prefix.IsValid():
			p.nets[r.Prefix] = append(p.nets[r.Prefix], ps)
		case r.Below:
			p.below[r.Name] = append(p.below[r.Name], ps)
		default:
			p.names[r.Name] = append(p.names[r.Name], ps)
		}
	}
}

// Strings returns the rules in their canonical form; nil for the nil policy.
func (p *Policy) Strings() []string {
	if p == nil {
		return nil
	}
	out := make([]string, len(p.rules))
	for i, r := range p.rules {
		out[i] = r.String()
	}
	return out
}

// AllowsName reports whether a canonical name (see [CanonicalName]) may be
// reached on a port. The address it turns out to have is for [Policy.AllowsDial].
func (p *Policy) AllowsName(proto Proto, name string, port uint16) bool {
	if p == nil {
		return port != 0
	}
	return p.matchName(name, func(ps ports) bool { return ps.has(proto, port) })
}

// KnowsName reports whether a name may be reached on any port of any protocol,
// and so whether it is resolved.
func (p *Policy) KnowsName(name string) bool {
	return p == nil || p.matchName(name, func(ports) bool { return true })
}

func (p *Policy) matchName(name string, ok func(ports) bool) bool {
	if name == "" {
		return false
	}
	if slices.ContainsFunc(p.names[name], ok) {
		return true
	}
	for rest := name; rest != ""; {
		_, rest, _ = strings.Cut(rest, ".")
		if slices.ContainsFunc(p.below[rest], ok) { // "" at last: every name
			return true
		}
	}
	return false
}

// AllowsAddr reports whether an address may be reached that the sandbox has
// dialled as such.
func (p *Policy) AllowsAddr(proto Proto, addr netip.Addr, port uint16) bool {
	addr = addr.Unmap().WithZone("")
	if p == nil {
		_, reserved := Reserved(addr)
		return port != 0 && !reserved
	}
	return p.matchAddr(proto, addr, port)
}

// AllowsDial reports whether a name that is allowed may be reached at an
// address that it has: a public one, or one that a rule opens.
func (p *Policy) AllowsDial(proto Proto, addr netip.Addr, port uint16) bool {
	addr = addr.Unmap().WithZone("")
	if _, reserved := Reserved(addr); !reserved {
		return true
	}
	return p != nil && p.matchAddr(proto, addr, port)
}

func (p *Policy) matchAddr(proto Proto, addr netip.Addr, port uint16) bool {
	if !addr.IsValid() || isMetadata(addr) {
		return false
	}
	family := 0
	if addr.Is6() {
		family = 1
	}
	_, reserved := Reserved(addr)
	for _, bits := range p.bits[family] {
		prefix, err := addr.Prefix(bits)
		if err != nil {
			continue
		}
		for _, ps := range p.nets[prefix] {
			// A wide rule never opens what is reserved.
			if ps.has(proto, port) && (!reserved || openable(prefix)) {
				return true
			}
		}
	}
	return false
}

func (ps ports) has(proto Proto, port uint16) bool {
	return ps.proto == proto && ps.low <= port && port <= ps.high
}

// Missing is the rule that would have allowed something: the name or address
// as it was asked for, and the port.
func Missing(proto Proto, host string, port uint16) string {
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		host = "[" + host + "]"
	}
	if proto == UDP {
		return fmt.Sprintf("udp:%s:%d", host, port)
	}
	return fmt.Sprintf("%s:%d", host, port)
}
