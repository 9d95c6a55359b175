package netd

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/egress"
)

const (
	maxPacket   = 65535
	flowBacklog = 32 // packets that wait while a flow is being made
)

// flow is the packets between one port of a sandbox and one destination.
type flow struct {
	box    *box
	router *router
	key    flowKey
	name   string
	in     chan []byte // to be sent
	ctx    context.Context
	cancel context.CancelFunc
	outer  *net.UDPConn // nil until dialled; under box.mu
	target netip.AddrPort
	used   time.Time // under box.mu
}

type flowKey struct{ src, dst netip.AddrPort }

// packetBuffers are held only while a packet is looked at: there are many
// sockets, and most of them are silent.
var packetBuffers = sync.Pool{New: func() any { return new([maxPacket]byte) }}

// readPacket waits for a packet and hands it to f, which must not keep it. The
// errors are those of reading from a net.UDPConn.
func readPacket(c *net.UDPConn, f func(packet, oob []byte, from unix.Sockaddr)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	rerr := raw.Read(func(fd uintptr) bool {
		buf := packetBuffers.Get().(*[maxPacket]byte)
		defer packetBuffers.Put(buf)
		var oob [128]byte
		n, on, _, from, e := unix.Recvmsg(int(fd), buf[:], oob[:], unix.MSG_DONTWAIT)
		if errors.Is(e, unix.EAGAIN) || errors.Is(e, unix.EINTR) {
			return false
		}
		if err = e; e == nil {
			f(buf[:n], oob[:on], from)
		}
		return true
	})
	return errors.Join(rerr, err)
}

// packetLoop runs until the socket is closed or has a deadline.
func (b *box) packetLoop(r *router) {
	for {
		err := readPacket(r.sockets.udp, func(packet, oob []byte, from unix.Sockaddr) {
			dst, ok := originalDestination(oob)
			if src, is := from.(*unix.SockaddrInet4); ok && is {
				b.arrived(r, bytes.Clone(packet), netip.AddrPortFrom(netip.AddrFrom4(src.Addr), uint16(src.Port)), dst)
			}
		})
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

func (b *box) arrived(r *router, packet []byte, src, dst netip.AddrPort) {
	if dst.Port() == dnsPort && b.asksUs(egress.UDP, dst) {
		b.packetDNS(r, packet, src, dst)
		return
	}
	b.packet(r, packet, flowKey{src, dst})
}

// packet hands a packet to its flow, which is made when there is none.
func (b *box) packet(r *router, packet []byte, key flowKey) {
	b.mu.Lock()
	f := b.flows[key]
	if f == nil && len(b.flows) < b.d.limits.Flows {
		f = b.newFlow(r, key)
		r.wg.Go(f.serve)
	}
	if f != nil {
		f.used = time.Now()
		b.out += int64(len(packet))
	}
	b.mu.Unlock()
	if f == nil {
		b.refuse(Refused, egress.UDP, key.dst, "", "too many UDP flows at once", "")
		return
	}
	select {
	case f.in <- packet:
	default: // as a full queue of a router would
	}
}

// newFlow makes a flow; the caller holds the lock.
func (b *box) newFlow(r *router, key flowKey) *flow {
	f := &flow{box: b, key: key, in: make(chan []byte, flowBacklog)}
	f.name, _ = b.names.name(key.dst.Addr())
	f.setContext(r)
	b.flows[key] = f
	return f
}

// setContext bounds the flow by the life of a router.
func (f *flow) setContext(r *router) {
	f.router = r
	f.ctx, f.cancel = context.WithCancel(r.ctx)
}

// serve decides about a flow, and carries its packets until it is idle.
func (f *flow) serve() {
	b := f.box
	defer f.cancel()
	if f.outer == nil && !f.open() {
		// The flow stays as it is for a while, so that its next packets are
		// not decided about again, and then is asked anew.
		f.discard()
		f.remove()
		return
	}
	if b.d.handing() {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.receive()
	}()
	for {
		select {
		case p := <-f.in:
			// An error is an ICMP message that came back for an earlier one.
			_, _ = f.outer.Write(p)
			continue
		case <-f.ctx.Done():
		}
		break
	}
	f.outer.SetReadDeadline(time.Now())
	<-done
	if b.d.handing() {
		return
	}
	f.outer.Close()
	f.remove()
}

// discard drops packets of a refused flow for a moment.
func (f *flow) discard() {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	for {
		select {
		case <-f.in:
		case <-t.C:
			return
		case <-f.ctx.Done():
			return
		}
	}
}

func (f *flow) remove() {
	f.box.mu.Lock()
	defer f.box.mu.Unlock()
	if f.box.flows[f.key] == f {
		delete(f.box.flows, f.key)
	}
}

func (f *flow) open() bool {
	b := f.box
	p := b.policy.Load().rules
	addrs, err := b.decide(f.ctx, p, egress.UDP, f.key.dst, f.name)
	if err == nil {
		var outer net.Conn
		if outer, err = b.d.outside.dial(f.ctx, egress.UDP, addrs[:1], f.key.dst.Port()); err == nil {
			b.mu.Lock()
			f.outer = outer.(*net.UDPConn)
			f.target = netip.AddrPortFrom(addrs[0], f.key.dst.Port())
			b.mu.Unlock()
			f.recheck()
			return true
		}
	}
	if reason, ok := errors.AsType[*failure](err); ok && f.ctx.Err() == nil {
		rule := ""
		if reason.reason == noRule {
			rule = f.missing()
		}
		b.refuse(reason.kind, egress.UDP, f.key.dst, f.name, reason.reason, rule)
	}
	return false
}

func (f *flow) missing() string {
	if f.name != "" {
		return egress.Missing(egress.UDP, f.name, f.key.dst.Port())
	}
	return egress.Missing(egress.UDP, f.key.dst.Addr().String(), f.key.dst.Port())
}

// recheck ends the flow when the policy of now does not allow it.
func (f *flow) recheck() {
	b := f.box
	p := b.policy.Load().rules
	b.mu.Lock()
	open, target := f.outer != nil, f.target
	b.mu.Unlock()
	if !open {
		f.cancel() // its next packet is decided about anew
		return
	}
	port := f.key.dst.Port()
	if f.name == "" && p.AllowsAddr(egress.UDP, f.key.dst.Addr(), port) ||
		f.name != "" && p.AllowsName(egress.UDP, f.name, port) && p.AllowsDial(egress.UDP, target.Addr(), port) {
		return
	}
	if f.ctx.Err() == nil {
		b.refuse(Cut, egress.UDP, f.key.dst, f.name, "the rules changed", f.missing())
	}
	f.cancel()
}

// receive brings answers back until the flow has been idle for long.
func (f *flow) receive() {
	b := f.box
	defer f.cancel()
	for {
		f.outer.SetReadDeadline(time.Now().Add(b.d.limits.Idle))
		if f.ctx.Err() != nil {
			return
		}
		err := readPacket(f.outer, func(packet, _ []byte, _ unix.Sockaddr) {
			b.mu.Lock()
			f.used = time.Now()
			b.in += int64(len(packet))
			b.mu.Unlock()
			b.answer(f.router, packet, f.key.src, f.key.dst)
		})
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			b.mu.Lock()
			idle := time.Since(f.used) >= b.d.limits.Idle
			b.mu.Unlock()
			if idle {
				return
			}
		}
		// Another error is that nobody listens there now.
	}
}

// answer sends a packet to the sandbox that seems to come from a destination.
func (b *box) answer(r *router, packet []byte, to, from netip.AddrPort) {
	if err := r.sockets.reply(packet, from, to); err != nil {
		b.d.log.Debug("answer a packet", "sandbox", b.id, "err", err)
	}
}
