package netd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/egress"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// box is the network of one sandbox.
type box struct {
	d  *daemon
	id string

	// op is held by operations on the box; they are done one after the other.
	op     sync.Mutex
	rec    record
	stored bool    // rec is on the disk
	gone   bool    // detached while somebody waited for op
	router *router // nil while not connected

	policy atomic.Pointer[policy]
	names  *names
	asking chan struct{} // holds a token for each question under way

	mu      sync.Mutex
	conns   map[*conn]struct{}
	flows   map[flowKey]*flow
	in, out int64 // bytes of what has ended, and of UDP
}

// policy holds the rules; those may be nil, this never is.
type policy struct{ rules *egress.Policy }

// router is what runs for a box while it is connected.
type router struct {
	ns      *os.File // R
	sockets sockets
	ctx     context.Context
	cancel  context.CancelFunc
	loops   sync.WaitGroup // that read the sockets
	wg      sync.WaitGroup // connections, flows, questions
}

// newBox makes the box of a record.
func (d *daemon) newBox(id string, rec record) (*box, error) {
	// Who wrote the rule had the right to; that was the server's to check.
	rules, err := egress.Parse(rec.rules(), true)
	if err != nil {
		return nil, err
	}
	n, err := openNames(d.dir.names(id))
	if err != nil {
		return nil, err
	}
	b := &box{
		d: d, id: id, rec: rec, names: n, asking: make(chan struct{}, d.limits.Questions),
		conns: map[*conn]struct{}{}, flows: map[flowKey]*flow{},
		in: rec.In, out: rec.Out,
	}
	b.policy.Store(&policy{rules})
	return b, nil
}

// attach readies S and R, and returns S open.
func (b *box) attach() (*os.File, error) {
	if !b.d.root {
		return nil, fault.New(fault.Unsupported, "a plain user cannot make a namespace for somebody else: hand over one of your own")
	}
	s, err := b.namespace(b.d.dir.sandbox(b.id))
	if err != nil {
		return nil, err
	}
	if err := b.join(s); err != nil {
		s.Close()
		return nil, err
	}
	if b.rec.Foreign != 0 || !b.stored {
		b.rec.Foreign = 0
		if err := b.save(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// adopt connects a namespace of somebody else.
func (b *box) adopt(s *os.File) error {
	if !isNamespace(s) {
		return fault.New(fault.Invalid, "what was handed over is no network namespace")
	}
	ino, err := inode(s)
	if err != nil {
		return err
	}
	if own, err := os.Open("/proc/self/ns/net"); err == nil {
		host, err := inode(own)
		own.Close()
		if err != nil || host == ino {
			return fault.New(fault.Invalid, "the network namespace of the host cannot be connected as that of a sandbox")
		}
	}
	if !b.d.root {
		return b.adoptAsUser(s, ino)
	}
	if b.rec.Foreign != ino {
		// A new start of the container; the other end is gone or useless.
		if err := b.unplug(); err != nil {
			return err
		}
		b.rec.Foreign = ino
		if err := b.save(); err != nil {
			return err
		}
	}
	return b.join(s)
}

// adoptAsUser connects a namespace that belongs to a user namespace of this
// user.
func (b *box) adoptAsUser(s *os.File, ino uint64) error {
	// The number alone says little: once a namespace is gone, the next one may
	// have it.
	if b.router != nil && b.rec.Foreign == ino && b.router.sockets.plugged() {
		return nil
	}
	b.shut() // and with it the other end of an earlier start
	r, socks, err := enter(b.d.ctx, s)
	if err != nil {
		return err
	}
	b.run(r, socks)
	b.rec.Foreign = ino
	return b.save()
}

// namespace opens the namespace at path, and makes it when there is none.
func (b *box) namespace(path string) (*os.File, error) {
	ns, err := openNamespace(path)
	if errors.Is(err, os.ErrNotExist) {
		return makeNamespace(path)
	}
	return ns, err
}

// join makes R if need be, connects S with it, and runs what listens there.
func (b *box) join(s *os.File) error {
	r, err := b.namespace(b.d.dir.router(b.id))
	if err != nil {
		return err
	}
	if b.router == nil {
		// The rules come first: no packet is to meet R without.
		if err := within(r, installRules); err != nil {
			r.Close()
			return err
		}
	}
	if err := connect(s, r); err != nil {
		r.Close()
		return err
	}
	if b.router != nil {
		r.Close()
		return nil
	}
	return b.listen(r)
}

// listen opens the sockets in R and serves them. It keeps r.
func (b *box) listen(r *os.File) error {
	s, err := listen(r)
	if err != nil {
		r.Close()
		return err
	}
	b.run(r, s)
	return nil
}

// run serves sockets.
func (b *box) run(ns *os.File, s sockets) {
	r := &router{ns: ns, sockets: s}
	r.ctx, r.cancel = context.WithCancel(b.d.ctx)
	b.router = r
	b.loop(r)
}

// loop starts the reading of the sockets.
func (b *box) loop(r *router) {
	r.loops.Go(func() { b.acceptLoop(r) })
	r.loops.Go(func() { b.packetLoop(r) })
	if r.sockets.log != nil {
		r.loops.Go(func() { b.logLoop(r) })
	}
}

// revive goes on with a box after the death of another netd.
func (b *box) revive() error {
	r, err := openNamespace(b.d.dir.router(b.id))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it is made when the sandbox starts
	}
	if err != nil {
		return err
	}
	if err := within(r, installRules); err != nil {
		r.Close()
		return err
	}
	return b.listen(r)
}

// shut ends everything that runs for the box.
func (b *box) shut() {
	r := b.router
	if r == nil {
		return
	}
	b.router = nil
	r.cancel()
	r.sockets.close()
	r.loops.Wait()
	for _, c := range b.connections() {
		c.kill()
	}
	r.wg.Wait()
	r.ns.Close()
}

// detach ends the box and removes all that is of it.
func (b *box) detach() error {
	b.shut()
	if !b.d.root {
		// The router is gone with its sockets.
		b.names.close()
		return b.d.dir.dropRecord(b.id)
	}
	var err error
	if b.rec.Foreign != 0 {
		// The namespace stays, and may be connected again at once.
		err = b.unplug()
	}
	// Otherwise the interfaces go with R, which nobody holds any more; that
	// the kernel does by itself, and later.
	err = errors.Join(err, dropNamespace(b.d.dir.sandbox(b.id)), dropNamespace(b.d.dir.router(b.id)))
	if err != nil {
		return err
	}
	b.names.close()
	return b.d.dir.dropRecord(b.id)
}

// unplug removes the interfaces of R and S.
func (b *box) unplug() error {
	r, err := openNamespace(b.d.dir.router(b.id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return within(r, func() error { return removeLink(routerName) })
}

// setPolicy gives the box other rules. They hold at once, for what runs too.
func (b *box) setPolicy(allow []string) error {
	rules, err := egress.Parse(allow, true)
	if err != nil {
		return err
	}
	b.policy.Store(&policy{rules})
	for _, c := range b.connections() {
		c.recheck()
	}
	b.mu.Lock()
	flows := make([]*flow, 0, len(b.flows))
	for _, f := range b.flows {
		flows = append(flows, f)
	}
	b.mu.Unlock()
	for _, f := range flows {
		f.recheck()
	}
	b.rec.Open, b.rec.Allow = allow == nil, allow
	return b.save()
}

func (b *box) connections() []*conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*conn, 0, len(b.conns))
	for c := range b.conns {
		all = append(all, c)
	}
	return all
}

// save writes the record.
func (b *box) save() error {
	b.rec.In, b.rec.Out = b.traffic()
	if err := b.d.dir.writeRecord(b.id, b.rec); err != nil {
		return fmt.Errorf("sandbox %s: %w", b.id, err)
	}
	b.stored = true
	return nil
}

// traffic counts bytes to and from the sandbox.
func (b *box) traffic() (in, out int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, out = b.in, b.out
	for c := range b.conns {
		i, o := c.count()
		in, out = in+i, out+o
	}
	return in, out
}

// settle takes a connection that ends off the list and keeps its count.
func (b *box) settle(c *conn) {
	in, out := c.count()
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.conns[c]; ok {
		delete(b.conns, c)
		b.d.room.Add(1)
		b.in, b.out = b.in+in, b.out+out
	}
}

// refuse records what was refused.
func (b *box) refuse(kind Kind, proto egress.Proto, dst netip.AddrPort, name, reason, rule string) {
	target := dst.String()
	if name != "" {
		target = fmt.Sprintf("%s:%d", name, dst.Port())
	}
	b.d.journal.add(Refusal{Sandbox: b.id, Kind: kind, Proto: string(proto), Target: target, Reason: reason, Rule: rule})
}

// logLoop records what the rules in R have dropped.
func (b *box) logLoop(r *router) {
	buf := make([]byte, 8<<10) // a message of the log is at most a page
	for {
		n, err := r.sockets.log.Read(buf)
		if err != nil {
			if errors.Is(err, unix.ENOBUFS) {
				continue // some were lost
			}
			return
		}
		for _, p := range parsePacketLog(buf[:n]) {
			reason := "only TCP and UDP leave a sandbox"
			if p.prefix == prefixSpoof {
				reason = fmt.Sprintf("the source address %s is forged", p.src)
			}
			b.d.journal.add(Refusal{Sandbox: b.id, Kind: Refused, Proto: protocolName(p.proto), Target: p.dst.String(), Reason: reason})
		}
	}
}
