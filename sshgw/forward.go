package sshgw

import (
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// drainForward is how long data that a client sent before it left may take to
// reach its destination in the sandbox, and that to end the connection.
const drainForward = 3 * time.Second

// serveDirectTCP serves a channel of type "direct-tcpip": ssh -L, -D and -W.
// The connection is made inside the sandbox; the gateway itself dials nothing.
func (c *conn) serveDirectTCP(sc *gossh.ServerConn, nc gossh.NewChannel) {
	host, port, err := parseDirectTCP(nc.ExtraData())
	if err != nil {
		_ = nc.Reject(gossh.ConnectionFailed, "the forwarding request is malformed")
		return
	}
	c.serveDirect(sc, nc, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))), func(d door) bool {
		return port == jumpPort && c.serveJump(sc, nc, d, host)
	})
}

// serveDirectUnix serves a channel of type "direct-streamlocal@openssh.com":
// ssh -L with a path as destination.
func (c *conn) serveDirectUnix(sc *gossh.ServerConn, nc gossh.NewChannel) {
	path, err := parseDirectUnix(nc.ExtraData())
	if err != nil {
		_ = nc.Reject(gossh.ConnectionFailed, "the forwarding request is malformed")
		return
	}
	c.serveDirect(sc, nc, "unix", path, func(door) bool { return false })
}

// serveDirect joins a channel with a connection made inside the sandbox, unless
// jump takes it.
func (c *conn) serveDirect(sc *gossh.ServerConn, nc gossh.NewChannel, network, address string, jump func(door) bool) {
	release, refusal := c.acquire(forwardChannel)
	if refusal != "" {
		_ = nc.Reject(gossh.ResourceShortage, refusal)
		return
	}
	defer release()
	d, err := c.enterDoor(c.ctx, sc)
	if err != nil {
		_ = nc.Reject(gossh.ConnectionFailed, sayError(err))
		return
	}
	if jump(d) {
		return
	}
	if err := c.mayForward(d); err != nil {
		_ = nc.Reject(gossh.Prohibited, sayError(err))
		return
	}
	began := c.srv.cfg.Now()
	stream, err := d.ops.Dial(c.ctx, d.ref, network, address)
	if err != nil {
		c.log.Info("ssh forward failed", "principal", d.who.ID, "where", d.ref, "address", quoted(address), "err", quoted(err.Error()))
		reason := gossh.ConnectionFailed
		if fault.Is(err, fault.Denied) {
			reason = gossh.Prohibited
		}
		_ = nc.Reject(reason, sayError(err))
		return
	}
	ch, requests, err := nc.Accept()
	if err != nil {
		_ = stream.Close()
		return
	}
	up, down := splice(ch, requests, stream)
	c.log.Info("ssh forward ended", "principal", d.who.ID, "where", d.ref, "address", quoted(address),
		"lasted", c.srv.cfg.Now().Sub(began), "received", up, "sent", down)
}

// mayForward says why nothing is forwarded where the connection leads. What
// the principal may is for the Engine to say.
func (c *conn) mayForward(d door) error {
	switch {
	case d.ref == "":
		return fault.New(fault.Denied, "the gateway forwards into sandboxes only: connect as <sandbox>@gateway")
	case c.srv.cfg.NoForwarding:
		return fault.New(fault.Denied, "forwarding is switched off on this gateway")
	}
	return nil
}

// splice copies both ways between a channel and a stream, each direction to its
// own end, and closes both. When the client's side is gone altogether, what it
// sent before is still delivered, in bounded time, and the stream is closed.
func splice(ch gossh.Channel, requests <-chan *gossh.Request, stream guest.Stream) (up, down int64) {
	gone, ended := make(chan struct{}), make(chan struct{})
	var wg, both sync.WaitGroup
	both.Go(func() { up = half(stream, ch) })
	both.Go(func() { down = half(ch, stream) })
	wg.Go(func() {
		defer close(gone)
		gossh.DiscardRequests(requests)
	})
	wg.Go(func() {
		defer close(ended)
		both.Wait()
	})
	select {
	case <-ended:
	case <-gone:
		// Closing the stream would throw away what is still on its way.
		t := time.NewTimer(drainForward)
		select {
		case <-ended:
		case <-t.C:
		}
		t.Stop()
	}
	_ = stream.Close()
	_ = ch.Close()
	wg.Wait()
	return up, down
}

// half copies one direction and passes its end on.
func half(dst interface {
	io.Writer
	CloseWrite() error
}, src io.Reader) int64 {
	n, err := copyStream(dst, src)
	if err != nil {
		_, _ = io.Copy(io.Discard, src) // so that the end of src is noticed
	}
	_ = dst.CloseWrite()
	return n
}
