package netd

import (
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	tableName = "sandgate"
	logGroup  = 7

	// What the kernel says of a packet that it drops; see packetlog.go.
	prefixSpoof = "spoof"
	prefixProto = "proto"
)

// installRules runs in R. It replaces the table in one batch:
//
//	table inet sandgate {
//	  chain pre { type filter hook prerouting priority mangle; policy drop;
//	    meta nfproto != ipv4 drop
//	    ip saddr != 10.0.2.15 limit rate 5/second log group 7 prefix "spoof"
//	    ip saddr != 10.0.2.15 drop
//	    meta l4proto tcp tproxy ip to :15001 accept
//	    meta l4proto udp tproxy ip to :15001 accept
//	    limit rate 5/second log group 7 prefix "proto"
//	    reject with icmpx admin-prohibited }
//	  chain fwd { type filter hook forward priority filter; policy drop; } }
//
// A packet for which nobody listens passes the tproxy rules and is refused by
// the last one.
func installRules() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reach nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	// Deleting makes the kernel wait for a moment, so only where there is
	// something.
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	for _, t := range tables {
		if t.Name == tableName {
			c.DelTable(t)
		}
	}
	c.AddTable(table)
	drop, accept := nftables.ChainPolicyDrop, &expr.Verdict{Kind: expr.VerdictAccept}
	c.AddChain(&nftables.Chain{
		Name: "fwd", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop,
	})
	pre := c.AddChain(&nftables.Chain{
		Name: "pre", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle, Policy: &drop,
	})
	rule := func(exprs ...expr.Any) { c.AddRule(&nftables.Rule{Table: table, Chain: pre, Exprs: exprs}) }

	notIPv4 := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
	}
	source := inside.Addr().As4()
	spoofed := []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: source[:]},
	}
	dropped := &expr.Verdict{Kind: expr.VerdictDrop}
	rule(append(notIPv4, dropped)...)
	rule(append(spoofed, logged(prefixSpoof)...)...)
	rule(append(spoofed, dropped)...)
	for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		rule(
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(tproxyPort)},
			&expr.TProxy{Family: byte(nftables.TableFamilyIPv4), TableFamily: byte(nftables.TableFamilyINet), RegPort: 2},
			accept,
		)
	}
	rule(logged(prefixProto)...)
	rule(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("install rules: %w", err)
	}
	return checkRules(c, table)
}

// logged hands a few packets a second to whoever listens; the others go on
// unseen.
func logged(prefix string) []expr.Any {
	return []expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: 5, Unit: expr.LimitTimeSecond, Burst: 5},
		&expr.Log{Key: 1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_PREFIX | 1<<unix.NFTA_LOG_SNAPLEN, Group: logGroup, Snaplen: 64, Data: []byte(prefix)},
	}
}

// checkRules reads back what was installed.
func checkRules(c *nftables.Conn, table *nftables.Table) error {
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("read rules back: %w", err)
	}
	var found []string
	for _, chain := range chains {
		if chain.Table.Name != table.Name {
			continue
		}
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return fmt.Errorf("read rules back: %w", err)
		}
		policy := "accept"
		if chain.Policy != nil && *chain.Policy == nftables.ChainPolicyDrop {
			policy = "drop"
		}
		found = append(found, fmt.Sprintf("%s:%s:%d", chain.Name, policy, len(rules)))
	}
	if got, want := strings.Join(found, " "), "fwd:drop:0 pre:drop:7"; got != want {
		return fmt.Errorf("the kernel has other rules than were installed: %s, want %s", got, want)
	}
	return nil
}
