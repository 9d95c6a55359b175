package sshgw

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// Remote forwards (ssh -R): sockets inside the sandbox whose connections are
// carried to the client. They belong to the connection that asked for them:
// nobody else can cancel one, and they are closed with it.

// listenTime bounds how long a socket may take to appear, a sandbox that has
// to be resumed included.
const listenTime = 2 * time.Minute

// listenerKey names a listener the way its client does.
type listenerKey struct {
	network string
	address string // the host or path as it was asked for
	port    uint32 // the one that was taken
}

// listeners are the listeners of one connection.
type listeners struct {
	mu        sync.Mutex
	open      map[listenerKey]context.CancelFunc
	cancelled time.Time // when the client cancelled one last
}

// listenTCP answers tcpip-forward. Who listens is decided by the host that is
// asked for, as by sshd with "GatewayPorts clientspecified": it is the
// sandbox's own network that may reach the port.
func (c *conn) listenTCP(sc *gossh.ServerConn, payload []byte) (bool, []byte) {
	host, port, err := parseListenTCP(payload)
	if err != nil {
		return false, nil
	}
	address := net.JoinHostPort(listenHost(host), strconv.Itoa(int(port)))
	l, d, release := c.listen(sc, guest.ListenRequest{Network: "tcp", Address: address})
	if l == nil {
		return false, nil
	}
	taken, err := listenerPort(l.Address(), port)
	if err != nil {
		c.log.Warn("ssh remote forward", "where", d.ref, "err", err)
		_ = l.Close()
		release()
		return false, nil
	}
	c.serveListener(sc, d, listenerKey{"tcp", host, taken}, l, release)
	if port != 0 {
		return true, nil
	}
	return true, gossh.Marshal(struct{ Port uint32 }{taken})
}

// listenHost turns the host of a tcpip-forward into one to listen on.
func listenHost(host string) string {
	switch host {
	case "", "*", "0.0.0.0", "::":
		return ""
	}
	return host
}

// listenerPort returns the port a guest says it listens on.
func listenerPort(address string, asked uint16) (uint32, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || asked != 0 && uint16(port) != asked {
		return 0, fault.New(fault.Unavailable, "the sandbox listens on a port that was not asked for")
	}
	return uint32(port), nil
}

// listenUnix answers streamlocal-forward@openssh.com. A socket that nobody
// listens on any more is replaced, as by sshd with "StreamLocalBindUnlink yes";
// one in use is not.
func (c *conn) listenUnix(sc *gossh.ServerConn, payload []byte) bool {
	path, err := parseListenUnix(payload)
	if err != nil {
		return false
	}
	l, d, release := c.listen(sc, guest.ListenRequest{Network: "unix", Address: path})
	if l == nil {
		return false
	}
	c.serveListener(sc, d, listenerKey{network: "unix", address: path}, l, release)
	return true
}

// listen opens a listener in the sandbox. Without one, the client was told
// why.
func (c *conn) listen(sc *gossh.ServerConn, r guest.ListenRequest) (l guest.Listener, d door, release func()) {
	ctx, cancel := context.WithTimeout(c.ctx, listenTime)
	defer cancel()
	fail := func(err error) (guest.Listener, door, func()) {
		c.log.Info("ssh remote forward failed", "principal", d.who.ID, "where", d.ref, "address", quoted(r.Address), "err", quoted(err.Error()))
		c.tell(sayError(err))
		c.audit("listen").target(r.Address).where(d.sandbox()).end(err)
		return nil, d, nil
	}
	if err := c.recheck(ctx, sc); err != nil {
		l, d, release = fail(err)
		_ = sc.Close()
		return l, d, release
	}
	d, err := c.enterDoor(ctx, sc)
	if err == nil {
		err = c.mayForward(d)
	}
	if err != nil {
		return fail(err)
	}
	release, refusal := c.acquire(forwardChannel)
	if refusal != "" {
		return fail(fault.New(fault.Exhausted, "%s", refusal))
	}
	r.User = d.account
	l, err = d.ops.Listen(ctx, d.ref, r)
	if fault.Is(err, fault.Busy) {
		if r.Replace = r.Network == "unix" && c.stale(ctx, d, r.Address); !r.Replace {
			c.settleListeners(ctx)
		}
		l, err = d.ops.Listen(ctx, d.ref, r)
	}
	if err != nil {
		release()
		return fail(err)
	}
	return l, d, release
}

// settleListeners waits a moment where the client has just cancelled a
// listener, for that to be closed in the sandbox too.
func (c *conn) settleListeners(ctx context.Context) {
	c.listeners.mu.Lock()
	recent := time.Since(c.listeners.cancelled) < 5*time.Second
	c.listeners.mu.Unlock()
	if !recent {
		return
	}
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// stale reports whether a unix socket has nobody behind it.
func (c *conn) stale(ctx context.Context, d door, path string) bool {
	st, err := d.ops.Dial(ctx, d.ref, "unix", path)
	if err == nil {
		_ = st.Close()
		return false
	}
	return fault.Is(err, fault.Unavailable)
}

// serveListener carries what connects to l to the client until the listener is
// cancelled, the connection ends, or the sandbox has gone.
func (c *conn) serveListener(sc *gossh.ServerConn, d door, key listenerKey, l guest.Listener, release func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	end := func() {
		cancel()
		_ = l.Close()
		release()
		close(ended)
	}
	if !c.enter() {
		end()
		return
	}
	c.listeners.add(key, func() {
		cancel()
		<-ended // so that the port is free when the client reads the answer
	})
	rec := c.audit("listen").target(l.Address()).where(d.sandbox())
	rec.start()
	c.log.Info("ssh remote forward", "principal", d.who.ID, "where", d.ref, "network", key.network, "address", quoted(l.Address()))
	go func() {
		defer c.wg.Done()
		defer contain(c.log, "remote forward", nil)
		defer end()
		defer rec.end(nil)
		for {
			st, peer, err := l.Accept(ctx)
			if err != nil {
				if ctx.Err() == nil {
					c.listeners.remove(key)
					c.tell("sandgate: the remote forward of " + oneLine(l.Address()) + " has ended: " + oneLine(fault.From(err).Error()))
				}
				return
			}
			c.forwardBack(sc, d, key, st, peer)
		}
	}()
}

func (l *listeners) add(key listenerKey, cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = make(map[listenerKey]context.CancelFunc)
	}
	l.open[key] = cancel
}

// remove forgets a listener and returns what ends it, nil if there is none.
func (l *listeners) remove(key listenerKey) context.CancelFunc {
	l.mu.Lock()
	defer l.mu.Unlock()
	cancel := l.open[key]
	delete(l.open, key)
	return cancel
}

// cancelTCP answers cancel-tcpip-forward. Without a port it means the listener
// of that host whose port the sandbox chose, if there is only one.
func (c *conn) cancelTCP(payload []byte) bool {
	host, port, err := parseListenTCP(payload)
	if err != nil {
		return false
	}
	key := listenerKey{"tcp", host, uint32(port)}
	if port == 0 {
		c.listeners.mu.Lock()
		same := slices.DeleteFunc(slices.Collect(maps.Keys(c.listeners.open)), func(k listenerKey) bool {
			return k.network != "tcp" || k.address != host
		})
		c.listeners.mu.Unlock()
		if len(same) != 1 {
			return false
		}
		key = same[0]
	}
	return c.cancelListener(key)
}

// cancelUnix answers cancel-streamlocal-forward@openssh.com.
func (c *conn) cancelUnix(payload []byte) bool {
	path, err := parseListenUnix(payload)
	return err == nil && c.cancelListener(listenerKey{network: "unix", address: path})
}

// cancelListener ends a listener; what it accepted goes on.
func (c *conn) cancelListener(key listenerKey) bool {
	cancel := c.listeners.remove(key)
	if cancel == nil {
		return false
	}
	cancel()
	c.listeners.mu.Lock()
	c.listeners.cancelled = time.Now()
	c.listeners.mu.Unlock()
	return true
}
