package netd

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// handoverFormat is the form of what is handed over. A daemon hands over to
// one that understands its form.
const handoverFormat = 1

// handoverTimeout bounds how long the old process waits for the new one.
const handoverTimeout = 15 * time.Second

// handedItem is one frame of a handover: one of its fields is set.
type handedItem struct {
	Error *wireError  `json:"error,omitempty"`
	Head  *handedHead `json:"head,omitempty"` // with listener and lock
	Box   *handedBox  `json:"box,omitempty"`  // with R and its sockets, when connected
	Conn  *handedConn `json:"conn,omitempty"` // with the inner socket, and the outer one
	Flow  *handedFlow `json:"flow,omitempty"` // with the outer socket
	End   bool        `json:"end,omitempty"`
	// Then the new process says Ready, and the old one Bye, and is gone.
	Ready bool `json:"ready,omitempty"`
	Bye   bool `json:"bye,omitempty"`
}

type handedHead struct {
	Journal savedJournal `json:"journal"`
}

// handedBox begins a sandbox; its connections and flows follow.
type handedBox struct {
	ID     string `json:"id"`
	Record record `json:"record"`
}

type handedConn struct {
	Dst     netip.AddrPort `json:"dst"`
	Target  netip.AddrPort `json:"target,omitzero"`
	Filter  filter         `json:"filter,omitzero"`
	Checked bool           `json:"checked,omitempty"`
	Said    string         `json:"said,omitempty"`
	Watch   *statusWatch   `json:"watch,omitempty"`
	Upgrade int32          `json:"upgrade,omitempty"`
	Up      handedHalf     `json:"up,omitzero"`
	Down    handedHalf     `json:"down,omitzero"`
}

type handedHalf struct {
	Pending []byte `json:"pending,omitempty"`
	Done    bool   `json:"done,omitempty"`
}

type handedFlow struct {
	Src    netip.AddrPort `json:"src"`
	Dst    netip.AddrPort `json:"dst"`
	Target netip.AddrPort `json:"target"`
}

// past stops what reads and writes; never lets it go on.
var (
	past  = time.Unix(1, 0)
	never time.Time
)

// handOver hands everything to the process on the other end. When that goes
// wrong, all goes on here.
func (d *daemon) handOver(c *net.UnixConn, format int) {
	c.SetDeadline(time.Now().Add(handoverTimeout))
	if format < handoverFormat {
		err := fault.New(fault.Unsupported, "the network daemon is of a newer build, and cannot be replaced by this one")
		_ = send(c, handedItem{Error: toWire(err)}) // the other side finds out by the end as well
		return
	}
	d.calls.Lock()
	defer d.calls.Unlock()
	if d.handing() || d.ctx.Err() != nil {
		return
	}
	began := time.Now()
	d.freeze()
	if err := d.handAll(c); err != nil {
		d.log.Warn("hand over; all goes on here", "err", err)
		c.Close() // before anything moves here
		d.thaw()
		return
	}
	d.log.Info("handed over to another process", "took", time.Since(began))
	d.stop()
}

// freeze stops everything without ending anything.
func (d *daemon) freeze() {
	d.handed.Store(true)
	d.listener.SetDeadline(past)
	for _, b := range d.all() {
		r := b.router
		if r == nil {
			continue
		}
		r.sockets.tcp.SetDeadline(past)
		r.sockets.udp.SetReadDeadline(past)
		if r.sockets.log != nil {
			r.sockets.log.SetReadDeadline(past)
		}
		r.loops.Wait()
		for _, c := range b.connections() {
			c.stop()
		}
		r.cancel()
		r.wg.Wait()
	}
}

// stop stops a connection, so that another process can go on with it.
func (c *conn) stop() {
	c.stopping.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inner.SetDeadline(past)
	if c.outer != nil {
		c.outer.SetDeadline(past)
	}
}

// thaw lets everything go on here.
func (d *daemon) thaw() {
	d.handed.Store(false)
	for _, b := range d.all() {
		old := b.router
		if old == nil {
			continue
		}
		old.sockets.tcp.SetDeadline(never)
		old.sockets.udp.SetReadDeadline(never)
		if old.sockets.log != nil {
			old.sockets.log.SetReadDeadline(never)
		}
		b.run(old.ns, old.sockets)
		b.goOn()
	}
	d.listener.SetDeadline(never)
}

// goOn runs the connections and flows that the box has.
func (b *box) goOn() {
	r := b.router
	for _, c := range b.connections() {
		c.stopping.Store(false)
		c.inner.SetDeadline(never)
		if c.outer != nil {
			c.outer.SetDeadline(never)
		}
		c.setContext(r)
		r.wg.Go(c.serve)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.flows {
		f.setContext(r)
		r.wg.Go(f.serve)
	}
}

// handAll sends everything and waits until the other side has it.
func (d *daemon) handAll(c *net.UnixConn) error {
	head := handedItem{Head: &handedHead{Journal: d.journal.save()}}
	if err := sendSockets(c, head, d.listener, d.lock); err != nil {
		return err
	}
	for _, b := range d.all() {
		if err := b.hand(c); err != nil {
			return err
		}
	}
	if err := send(c, handedItem{End: true}); err != nil {
		return err
	}
	var answer handedItem
	files, err := receive(c, &answer)
	closeAll(files)
	if err != nil {
		return err
	}
	if !answer.Ready {
		return fmt.Errorf("the new process is not ready")
	}
	// From here on all of it is theirs, whether they hear this or not.
	_ = send(c, handedItem{Bye: true})
	return nil
}

func (b *box) hand(c *net.UnixConn) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := b.rec
	rec.In, rec.Out = b.in, b.out // what runs is counted on
	item := handedItem{Box: &handedBox{ID: b.id, Record: rec}}
	r := b.router
	if r == nil {
		return send(c, item)
	}
	sockets := []syscall.Conn{r.ns, r.sockets.tcp, r.sockets.udp, r.sockets.raw}
	if r.sockets.log != nil {
		sockets = append(sockets, r.sockets.log)
	}
	if err := sendSockets(c, item, sockets...); err != nil {
		return err
	}
	for k := range b.conns {
		if k.dead.Load() {
			continue
		}
		item, sockets := k.hand()
		if err := sendSockets(c, handedItem{Conn: &item}, sockets...); err != nil {
			return err
		}
	}
	for key, f := range b.flows {
		if f.outer == nil {
			continue
		}
		item := handedItem{Flow: &handedFlow{Src: key.src, Dst: key.dst, Target: f.target}}
		if err := sendSockets(c, item, f.outer); err != nil {
			return err
		}
	}
	return nil
}

// hand describes a stopped connection.
func (c *conn) hand() (handedConn, []syscall.Conn) {
	h := handedConn{Dst: c.dst}
	if c.outer == nil {
		return h, []syscall.Conn{c.inner} // it is decided about anew
	}
	h.Target, h.Filter, h.Checked, h.Said = c.target, c.filter, c.checked, c.said
	h.Watch, h.Upgrade = c.watch, c.upgrade.Load()
	h.Up, h.Down = handedHalf{c.up.pending, c.up.done}, handedHalf{c.down.pending, c.down.done}
	return h, []syscall.Conn{c.inner, c.outer}
}

// sendSockets sends a frame with the descriptors of sockets, which stay as
// they are: File() would make them block.
func sendSockets(c *net.UnixConn, v any, sockets ...syscall.Conn) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, s := range sockets {
		raw, err := s.SyscallConn()
		if err != nil {
			return fmt.Errorf("hand over a socket: %w", err)
		}
		var dup int
		cerr := raw.Control(func(fd uintptr) {
			dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		})
		if cerr != nil {
			return fmt.Errorf("hand over a socket: %w", cerr)
		}
		if err != nil {
			return os.NewSyscallError("dup", err)
		}
		fds = append(fds, dup)
	}
	return send(c, v, fds...)
}
