package sshgw

import (
	"net"
	"strings"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// A jump (ssh -J gateway sbx_…): the control account's direct-tcpip to port 22
// of a sandbox is answered by this same server, on the channel. The client goes
// through the whole handshake again, because the channel proves nothing: who
// can use a forwarded port or a control socket of the client can open one. The
// host keys are the same, so one line of known_hosts is good for every sandbox.

// jumpPort is the port of a sandbox that means a jump.
const jumpPort = 22

// jump is what is known of a connection that came through another one.
type jump struct {
	outer     *conn
	sc        *gossh.ServerConn // of outer
	principal string            // of outer; the only one who may come through
	sandbox   string            // id; where it leads, whatever user name is given
}

// serveJump serves a channel to host:22 where that is a jump, and reports
// whether it was one.
func (c *conn) serveJump(sc *gossh.ServerConn, nc gossh.NewChannel, d door, host string) bool {
	host = strings.TrimSuffix(host, ".")
	isID := strings.HasPrefix(host, idPrefix) && isWord(host[len(idPrefix):], isLowerAlnum)
	switch {
	case c.jump != nil && isID:
		_ = nc.Reject(gossh.Prohibited, "sandgate: one jump leads to a sandbox; leave the other one out (ssh -J gateway "+host+")")
		return true
	case d.ref != "" || !isID && !isWord(host, isNameByte) || net.ParseIP(host) != nil:
		return false // a connection inside of a sandbox, or none
	}
	box, err := d.ops.Get(c.ctx, host)
	if err != nil {
		c.log.Info("ssh jump refused", "principal", d.who.ID, "where", quoted(host), "err", quoted(err.Error()))
		_ = nc.Reject(gossh.ConnectionFailed, sayError(err))
		return true
	}
	if !c.enterJump() {
		_ = nc.Reject(gossh.ResourceShortage, errStopping.Error())
		return true
	}
	defer c.leaveJump()
	if o, ok := nc.(*meteredOpen); ok {
		o.rec.command("jump", "", false)
	}
	ch, requests, err := nc.Accept()
	if err != nil {
		return true // the connection has ended
	}
	l := newLink(ch, c.wire.Conn, func() { _ = sc.Close() })
	c.wg.Go(l.pump)
	c.wg.Go(func() {
		gossh.DiscardRequests(requests)
		close(l.gone)
	})
	c.serveInner(l, jump{outer: c, sc: sc, principal: d.who.ID, sandbox: box.ID})
	<-l.gone // the place is taken until the client has let go of it
	return true
}

// serveInner serves the connection of a jump to its end.
func (c *conn) serveInner(l *link, j jump) {
	defer func() { _ = l.Close() }()
	inner := c.srv.newConn(l)
	inner.jump = &j
	inner.log = inner.log.With("jump", j.sandbox)
	defer contain(inner.log, "jump", nil)
	defer inner.end(errGone)
	inner.serve(func() {})
}

// enterJump counts a jump, for a gateway that stops to wait for; false when it
// stops already.
func (c *conn) enterJump() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return false
	}
	c.jumps++
	return true
}

func (c *conn) leaveJump() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jumps--
	c.settled()
}

// mayJump says why a principal may not come in on this connection: through a
// jump only who opened it may.
func (c *conn) mayJump(p keys.Principal) error {
	if c.jump != nil && p.ID != c.jump.principal {
		return fault.New(fault.Denied, "this key belongs to another principal than the one that reached the gateway; use the same key for both")
	}
	return nil
}

// target finds out what the user name asks for. Behind a jump the sandbox is
// fixed, and of the user name only what follows a sandbox's name counts
// ("+session", "+~user", "~user"): clients send some login name anyway.
func (c *conn) target(user string) (target, error) {
	if c.jump == nil {
		return parseUser(user)
	}
	switch {
	case strings.HasPrefix(user, "~"):
		user = "+" + user
	case !strings.HasPrefix(user, "+"):
		user = ""
	}
	return parseUser(c.jump.sandbox + user)
}
