package egress

import (
	"net/netip"
	"slices"
)

// FakeNetwork is where the addresses lie that stand for names inside a
// sandbox. They exist nowhere else.
var FakeNetwork = netip.MustParsePrefix("198.18.0.0/15")

// block is a network that is not the public internet.
type block struct {
	prefix netip.Prefix
	why    string
	open   bool // a rule can open it
}

// blocks are the networks that sandboxes do not reach. Those that carry an
// IPv4 address inside of an IPv6 one (NAT64, 6to4, Teredo) are among them: the
// gateway of such a network would reach what is refused here.
var blocks = []block{
	{netip.MustParsePrefix("0.0.0.0/8"), "this host", false},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private network", true},
	{netip.MustParsePrefix("100.64.0.0/10"), "a shared network", true},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback", false},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address, where clouds keep their metadata", false},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private network", true},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved network", false},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private network", true},
	{FakeNetwork, "an address without a name", false},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast", false},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved network", false},
	{netip.MustParsePrefix("::/96"), "this host", false},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "a translated IPv4 address", false},
	{netip.MustParsePrefix("64:ff9b::/96"), "a translated IPv4 address", false},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a translated IPv4 address", false},
	{netip.MustParsePrefix("100::/64"), "a reserved network", false},
	{netip.MustParsePrefix("2001::/32"), "a tunnelled IPv4 address", false},
	{netip.MustParsePrefix("2002::/16"), "a tunnelled IPv4 address", false},
	{netip.MustParsePrefix("fc00::/7"), "a private network", true},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address", false},
	{netip.MustParsePrefix("fec0::/10"), "a private network", false},
	{netip.MustParsePrefix("ff00::/8"), "multicast", false},
}

// metadata lists where clouds hand out their credentials, beside 169.254.0.0/16.
// These lie in networks that are public, or that can be opened, and are
// nobody's to open.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:42::42"),     // Scaleway
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

const metadataWhy = "the address where clouds keep their metadata"

func isMetadata(addr netip.Addr) bool { return slices.Contains(metadata, addr) }

// Reserved reports whether an address is not on the public internet, and what
// it is instead. An IPv4 address in the form of an IPv6 one is looked at as
// what it is.
func Reserved(addr netip.Addr) (why string, reserved bool) {
	if !addr.IsValid() {
		return "no address", true
	}
	addr = addr.Unmap().WithZone("")
	if isMetadata(addr) {
		return metadataWhy, true
	}
	for _, b := range blocks {
		if b.prefix.Contains(addr) {
			return b.why, true
		}
	}
	return "", false
}

// reservedPrefix reports whether all of a network is reserved.
func reservedPrefix(p netip.Prefix) (why string, reserved bool) {
	if p.IsSingleIP() && isMetadata(p.Addr()) {
		return metadataWhy, true
	}
	for _, b := range blocks {
		if b.prefix.Bits() <= p.Bits() && b.prefix.Contains(p.Addr()) {
			return b.why + " (" + b.prefix.String() + ")", true
		}
	}
	return "", false
}

// openable reports whether a rule for p opens reserved addresses: it lies in a
// network that can be opened.
func openable(p netip.Prefix) bool {
	if p.IsSingleIP() && isMetadata(p.Addr()) {
		return false
	}
	for _, b := range blocks {
		if b.open && b.prefix.Bits() <= p.Bits() && b.prefix.Contains(p.Addr()) {
			return true
		}
	}
	return false
}
