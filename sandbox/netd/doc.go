// Package netd is the network of sandboxes: a daemon that everything they send
// ends at, and the client that drivers and the server use it with.
//
// # How it works
//
// Each sandbox that is connected has a namespace of its own, S, and a second
// one beside it, R, the router:
//
//	S (sandbox)                R (router)                       host
//	eth0 10.0.2.15/24 --veth-- r0 10.0.2.2/24; every address    netd: sockets opened in R,
//	default via 10.0.2.2       is local; nft: TPROXY to :15001   dials with sockets opened here
//
// No packet can leave R: it has no other interface and forwards nothing. The
// only way out is a socket that netd opens, after it has decided. When netd is
// dead, nothing gets out. The host has no rule, no route and no sysctl of ours.
// All sandboxes have the same address, so a memory image fits everywhere, and
// no sandbox has an address for another one.
//
// The name server inside (10.0.2.2, or any other address asked on port 53) is
// netd. It gives every allowed name an address of its own in 198.18.0.0/15,
// which means that name and nothing else for as long as the sandbox lives. So
// netd knows by the destination which name is meant, whatever the protocol,
// resolves it itself, and looks at the address it is about to dial. See
// package egress for the rules.
//
// # Processes
//
// netd is a process of its own ([Run], started by [Ensure]) with a folder of
// its own, and outlives the server. A build that replaces another takes over
// its sockets with all connections ([Config.Takeover]). After a crash a new one
// finds the namespaces, listens in them again, and knows policies and names
// from its folder. Connections are lost then; namespaces, and the sandboxes in
// them, are not.
package netd

import "net/netip"

// The addresses inside, the same in every sandbox.
var (
	gateway = netip.MustParseAddr("10.0.2.2")
	inside  = netip.MustParsePrefix("10.0.2.15/24")
)

// resolver is the address of the name server inside.
const resolver = "10.0.2.2"

const (
	tproxyPort = 15001
	// mtu may be larger than that of the way out: connections end in R.
	mtu = 65520

	insideName = "eth0" // in S
	routerName = "r0"   // in R
)
