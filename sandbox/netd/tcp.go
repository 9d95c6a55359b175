package netd

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/egress"
)

// conn is one connection of a sandbox, from the moment it was accepted.
type conn struct {
	box    *box
	dst    netip.AddrPort // what the sandbox dialled
	name   string         // what that means; empty for an address
	inner  *net.TCPConn
	ctx    context.Context // of the dialling
	cancel context.CancelFunc

	mu      sync.Mutex
	outer   *net.TCPConn   // nil until dialled
	target  netip.AddrPort // what it is connected to
	filter  filter
	checked bool   // a filter looked at it
	said    string // the last name that the filter allowed
	watch   *statusWatch
	upgrade atomic.Int32

	up, down half
	stopping atomic.Bool // for another process to go on with
	dead     atomic.Bool // ended by us
}

// acceptLoop runs until the listener is closed or has a deadline.
func (b *box) acceptLoop(r *router) {
	for {
		c, err := r.sockets.tcp.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			// Out of descriptors or memory: let others end.
			select {
			case <-r.ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		b.accepted(r, c)
	}
}

func (b *box) accepted(r *router, inner *net.TCPConn) {
	dst := inner.LocalAddr().(*net.TCPAddr).AddrPort()
	c := b.newConn(r, inner, netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port()))
	b.mu.Lock()
	full := len(b.conns) >= b.d.limits.Connections
	crowded := !full && b.d.room.Add(-1) < 0
	if !full && !crowded {
		b.conns[c] = struct{}{}
	}
	b.mu.Unlock()
	if crowded {
		b.d.room.Add(1)
		b.refuse(Refused, egress.TCP, c.dst, c.name, "too many connections of all sandboxes at once", "")
	}
	if full {
		b.refuse(Refused, egress.TCP, c.dst, c.name, "too many connections at once", "")
	}
	if full || crowded {
		c.cancel()
		reset(inner)
		return
	}
	r.wg.Go(c.serve)
}

func (b *box) newConn(r *router, inner *net.TCPConn, dst netip.AddrPort) *conn {
	c := &conn{box: b, inner: inner, dst: dst}
	c.name, _ = b.names.name(dst.Addr())
	c.setContext(r)
	return c
}

// setContext bounds what the connection does by the life of a router.
func (c *conn) setContext(r *router) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.cancel = context.WithCancel(r.ctx)
}

// serve decides about a connection, and carries it until it ends or is stopped.
func (c *conn) serve() {
	defer c.cancel()
	defer c.leave()
	if c.dst.Port() == dnsPort && c.box.asksUs(egress.TCP, c.dst) {
		c.serveDNS()
		return
	}
	if c.outer == nil && !c.open() {
		return
	}
	c.carry()
}

// leave ends a connection for good, unless it is to go on elsewhere.
func (c *conn) leave() {
	if c.stopping.Load() && !c.dead.Load() {
		return
	}
	c.box.settle(c)
	c.inner.Close()
	if c.outer != nil {
		c.outer.Close()
	}
}

// open decides, and dials.
func (c *conn) open() bool {
	b := c.box
	p := b.policy.Load().rules
	addrs, err := b.decide(c.ctx, p, egress.TCP, c.dst, c.name)
	if err == nil {
		var outer net.Conn
		if outer, err = b.d.outside.dial(c.ctx, egress.TCP, addrs, c.dst.Port()); err == nil {
			c.mu.Lock()
			c.outer = outer.(*net.TCPConn)
			c.target = c.outer.RemoteAddr().(*net.TCPAddr).AddrPort()
			c.target = netip.AddrPortFrom(c.target.Addr().Unmap(), c.target.Port())
			if c.name != "" {
				c.filter = filterFor(p, c.dst.Port())
			}
			c.checked = c.filter.Kind != filterNone
			if c.filter.Kind == filterHTTP {
				c.watch = new(statusWatch)
			}
			c.mu.Unlock()
			// The policy may have changed while the world was asked.
			c.recheck()
			return !c.dead.Load()
		}
	}
	if c.stopping.Load() {
		return false
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{Failed, "the connection was given up"}
	}
	rule := ""
	if f.kind == Refused && f.reason == noRule {
		rule = c.missing()
	}
	c.end(f.kind, f.reason, rule)
	return false
}

// noRule is the reason that a rule can change.
const noRule = "no rule allows it"

// decide is the decision about one destination; it returns the addresses to
// dial.
func (b *box) decide(ctx context.Context, p *egress.Policy, proto egress.Proto, dst netip.AddrPort, name string) ([]netip.Addr, error) {
	if name != "" {
		if !p.AllowsName(proto, name, dst.Port()) {
			return nil, &failure{Refused, noRule}
		}
		return b.d.outside.candidates(ctx, p, proto, name, dst.Port())
	}
	if !p.AllowsAddr(proto, dst.Addr(), dst.Port()) {
		if why, reserved := egress.Reserved(dst.Addr()); reserved {
			return nil, &failure{Refused, why}
		}
		return nil, &failure{Refused, noRule}
	}
	if why := b.d.outside.judge(dst.Addr()); why != "" {
		return nil, &failure{Refused, why}
	}
	return []netip.Addr{dst.Addr()}, nil
}

func (c *conn) missing() string {
	if c.name != "" {
		return egress.Missing(egress.TCP, c.name, c.dst.Port())
	}
	return egress.Missing(egress.TCP, c.dst.Addr().String(), c.dst.Port())
}

// recheck cuts the connection when the policy of now does not allow it.
func (c *conn) recheck() {
	p := c.box.policy.Load().rules
	c.mu.Lock()
	ok := c.outer == nil || c.allowed(p)
	c.mu.Unlock()
	if !ok {
		c.end(Cut, "the rules changed", c.missing())
	}
}

// allowed reports whether a policy allows what the connection is. The caller
// holds the lock.
func (c *conn) allowed(p *egress.Policy) bool {
	port := c.dst.Port()
	if c.name == "" {
		return p.AllowsAddr(egress.TCP, c.dst.Addr(), port)
	}
	if !p.AllowsName(egress.TCP, c.name, port) || !p.AllowsDial(egress.TCP, c.target.Addr(), port) {
		return false
	}
	if c.said != "" && !p.AllowsName(egress.TCP, c.said, port) {
		return false
	}
	// It was let through without a look while everything was allowed.
	return p == nil || c.checked || port != 80 && port != 443
}

// carry moves the bytes of both directions until they end or are stopped.
func (c *conn) carry() {
	if c.stopping.Load() {
		return
	}
	c.up.src, c.up.dst = c.inner, c.outer
	c.down.src, c.down.dst = c.outer, c.inner
	if c.filter.Kind != filterNone {
		c.up.look = c.lookUp
	}
	if c.watch != nil && c.upgrade.Load() <= int32(upgradePending) {
		c.down.look = c.lookDown
	}
	if c.filter.strict() && !c.filter.Passed {
		timer := time.AfterFunc(c.box.d.limits.Handshake, c.hurry)
		defer timer.Stop()
	}
	var down sync.WaitGroup
	down.Go(func() {
		if c.broke(c.down.run()) {
			c.kill()
		}
	})
	if c.broke(c.up.run()) {
		// What the server said before it hung up is still on its way.
		timer := time.AfterFunc(time.Second, func() { c.kill() })
		defer timer.Stop()
	}
	down.Wait()
}

// broke looks at how a direction ended, and reports whether the other one has
// to end as well.
func (c *conn) broke(err error) bool {
	switch {
	case err == nil, c.dead.Load():
		return false
	case c.stopping.Load() && errors.Is(err, os.ErrDeadlineExceeded):
		return false
	}
	if reason, name, ok := reasonOf(err); ok {
		rule := ""
		if name, ok := egress.CanonicalName(hostOf(name)); ok {
			rule = egress.Missing(egress.TCP, name, c.dst.Port())
		}
		if name != "" {
			reason += " (" + name + ")"
		}
		c.end(Refused, reason, rule)
	}
	return true
}

// lookUp judges what the sandbox sends.
func (c *conn) lookUp(p []byte) ([]byte, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := c.filter.feed(p, func(name string) bool {
		// Under the lock: a change of the policy comes before or after.
		if !c.box.policy.Load().rules.AllowsName(egress.TCP, name, c.dst.Port()) {
			return false
		}
		c.said = name
		return true
	}, func() upgrade { return upgrade(c.upgrade.Load()) })
	return out, c.filter.Kind == filterNone, err
}

// lookDown waits for the status of the first response.
func (c *conn) lookDown(p []byte) ([]byte, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.watch.feed(p)
	c.upgrade.Store(int32(u))
	return p, u != upgradePending, nil
}

// hurry ends a connection that does not say whom it is for.
func (c *conn) hurry() {
	c.mu.Lock()
	passed := c.filter.Passed || c.filter.Kind == filterNone
	c.mu.Unlock()
	if !passed && !c.stopping.Load() {
		c.end(Refused, "it did not say in time whom it is for", "")
	}
}

// end ends a connection and tells why.
func (c *conn) end(kind Kind, reason, rule string) {
	if c.kill() {
		c.box.refuse(kind, egress.TCP, c.dst, c.name, reason, rule)
	}
}

// kill resets both sides; false when that was done before.
func (c *conn) kill() bool {
	if !c.dead.CompareAndSwap(false, true) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
	c.box.settle(c)
	reset(c.inner)
	if c.outer != nil {
		reset(c.outer)
	}
	return true
}

// reset closes a connection so that the other side sees it at once.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails on what is closed
	c.Close()
}

// count reads from the kernel what went over a connection so far.
func (c *conn) count() (in, out int64) {
	raw, err := c.inner.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) { // fails on what is closed, and was counted then
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			in, out = int64(info.Bytes_acked), int64(info.Bytes_received)
		}
		if queued, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			in += int64(queued) // written, and not acknowledged yet
		}
	})
	return in, out
}
