package sshgw

import (
	"net/netip"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// forwardBack carries one connection that was accepted inside the sandbox to
// the client, on a goroutine of its own. It owns st.
func (c *conn) forwardBack(sc *gossh.ServerConn, d door, key listenerKey, st guest.Stream, peer string) {
	kind, extra := "forwarded-streamlocal@openssh.com", gossh.Marshal(struct{ Path, Reserved string }{key.address, ""})
	if key.network == "tcp" {
		// The client finds the forward by the host it asked for, as it wrote it.
		from := peerAddress(peer)
		kind = "forwarded-tcpip"
		extra = gossh.Marshal(struct {
			Host       string
			Port       uint32
			Origin     string
			OriginPort uint32
		}{key.address, key.port, from.Addr().String(), uint32(from.Port())})
	}
	c.carry(sc, d, kind, extra, st)
}

// peerAddress reads what a guest says about who has connected. It decides
// nothing; clients show it to people.
func peerAddress(peer string) netip.AddrPort {
	from, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port())
}

// auditKinds are what the audit log calls the channels that are opened to
// clients.
var auditKinds = map[string]string{
	"forwarded-tcpip": "forwarded", "forwarded-streamlocal@openssh.com": "forwarded", "auth-agent@openssh.com": "agent",
}

// carry opens a channel to the client for st and joins the two, on a goroutine
// of its own. Where there is no place for it, or the client does not want it,
// st is closed, which is all that who has connected can be told.
func (c *conn) carry(sc *gossh.ServerConn, d door, kind string, extra []byte, st guest.Stream) {
	release, refusal := c.acquire(forwardChannel)
	if refusal != "" {
		c.log.Info("ssh forward refused", "principal", d.who.ID, "where", d.ref, "kind", kind, "err", refusal)
		_ = st.Close()
		return
	}
	if !c.enter() {
		release()
		_ = st.Close()
		return
	}
	go func() {
		defer c.wg.Done()
		defer contain(c.log, "forward", nil)
		defer release()
		began := c.srv.cfg.Now()
		rec := c.audit(auditKinds[kind]).where(d.sandbox())
		defer rec.end(nil)
		ch, requests, err := c.openChannel(sc, kind, extra, rec)
		if err != nil {
			c.log.Debug("ssh client refused a forward", "kind", kind, "err", quoted(err.Error()))
			_ = st.Close()
			return
		}
		up, down := splice(ch, requests, st)
		c.log.Info("ssh forward ended", "principal", d.who.ID, "where", d.ref, "kind", kind,
			"lasted", c.srv.cfg.Now().Sub(began), "received", up, "sent", down)
	}()
}
