package sshgw

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// An address that fails too often is turned away, not at once, not for long,
// and less so when somebody is at home there.
func TestP06Penalties(t *testing.T) {
	now := time.Unix(1e9, 0)
	g := newGate(Limits{}.withDefaults(), func() time.Time { return now })
	open := func(addr net.Addr) bool {
		w := g.enter(addr, func() {})
		if w != nil {
			g.leave(w)
		}
		return w != nil
	}
	bad := tcp("192.0.2.1")
	for i := range 2 {
		g.failed(bad, failedKeys)
		if !open(bad) {
			t.Fatalf("turned away after %d failures", i+1)
		}
	}
	g.failed(bad, failedKeys)
	if open(bad) {
		t.Error("three failures cost nothing")
	}
	if !open(tcp("192.0.2.2")) {
		t.Error("another address pays")
	}
	now = now.Add(15 * time.Second)
	if !open(bad) {
		t.Error("the penalty does not end")
	}
	// It does not grow without end.
	for range 100 {
		g.failed(bad, failedFlood)
	}
	now = now.Add(59 * time.Second)
	if open(bad) {
		t.Error("a flood is forgotten too soon")
	}
	now = now.Add(time.Second)
	if !open(bad) {
		t.Error("the penalty is longer than it may be")
	}
	// Many people behind one address: a login clears it, and later failures
	// count for little.
	nat := tcp("198.51.100.1")
	g.failed(nat, failedFlood)
	g.welcome(nat)
	if !open(nat) {
		t.Error("an address with a login is shut")
	}
	for range 100 {
		g.failed(nat, failedLate)
	}
	if open(nat) {
		t.Error("failures beside a login cost nothing")
	}
	now = now.Add(leastPenalty)
	if !open(nat) {
		t.Error("people behind one address are kept out for long")
	}
	// The own host, connections that got in, and a gateway without penalties.
	for range 100 {
		g.failed(tcp("127.0.0.1"), failedFlood)
		g.failed(tcp("203.0.113.1"), noFailure)
	}
	if !open(tcp("127.0.0.1")) || !open(tcp("203.0.113.1")) {
		t.Error("who has no penalty is turned away")
	}
	g.limits.PenaltyMax = -1
	for range 100 {
		g.failed(tcp("203.0.113.2"), failedFlood)
	}
	if !open(tcp("203.0.113.2")) {
		t.Error("there are penalties although they are off")
	}
	// They are not remembered for ever, nor without end.
	g.limits.PenaltyMax = time.Minute
	for i := range 3000 {
		g.failed(tcp(fmt.Sprintf("10.0.%d.%d", i/256, i%256)), failedKeys)
	}
	now = now.Add(2 * time.Hour)
	open(tcp("10.1.0.0"))
	if n := len(g.sources); n > 10 {
		t.Errorf("%d addresses are remembered", n)
	}
}

// Whoever offers wrong keys only is turned away after a while, and others from
// elsewhere are not.
func TestP06WrongKeys(t *testing.T) {
	g := newGateway(t, remote)
	for i := 0; ; i++ {
		if i > 20 {
			t.Fatal("twenty failed logins cost nothing")
		}
		nc, err := from("127.0.0.9").Dial("tcp", g.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		_, _, _, err = gossh.NewClientConn(nc, "", g.clientConfig("box", "stranger"))
		_ = nc.Close()
		if err == nil {
			t.Fatal("a stranger got in")
		}
		if !strings.Contains(err.Error(), "unable to authenticate") {
			break // turned away before that
		}
	}
	g.logsIn(t, "127.0.0.1")
}
