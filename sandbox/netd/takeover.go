package netd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// takeOver takes everything from the daemon that runs on the folder;
// errNobody when none does.
func (d *daemon) takeOver() error {
	ctx, cancel := context.WithTimeout(d.ctx, handoverTimeout)
	defer cancel()
	c, err := dialFolder(ctx, d.dir)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(handoverTimeout))
	if err := send(c, call{Call: callHandover, Format: handoverFormat}); err != nil {
		return err
	}
	if err := d.takeAll(c); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	for _, b := range d.boxes {
		if b.router != nil {
			b.loop(b.router)
			b.goOn()
		}
	}
	d.log.Info("network daemon took over", "build", d.build, "sandboxes", len(d.boxes))
	return nil
}

// takeAll receives everything, and returns nil when it is ours.
func (d *daemon) takeAll(c *net.UnixConn) error {
	var b *box
	for {
		var item handedItem
		files, err := receive(c, &item)
		if err != nil {
			return err
		}
		switch {
		case item.Error != nil:
			err = item.Error.fault()
		case item.Head != nil:
			err = d.takeHead(item.Head, files)
		case item.Box != nil:
			b, err = d.takeBox(item.Box, files)
		case item.Conn != nil && b != nil && b.router != nil:
			err = b.takeConn(item.Conn, files)
		case item.Flow != nil && b != nil && b.router != nil:
			err = b.takeFlow(item.Flow, files)
		case item.End:
			return d.confirm(c)
		default:
			err = errors.New("the old process sends what this one does not know")
		}
		if err != nil {
			closeAll(files)
			return err
		}
	}
}

// confirm tells the old process that all has arrived.
func (d *daemon) confirm(c *net.UnixConn) error {
	if d.listener == nil || d.lock == nil {
		return errors.New("the old process did not hand over its socket")
	}
	if err := send(c, handedItem{Ready: true}); err != nil {
		return err
	}
	var bye handedItem
	files, err := receive(c, &bye)
	closeAll(files)
	switch {
	case err == nil && bye.Bye:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("the old process does not let go")
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		// It either died, or has changed its mind and goes on; who has the
		// lock to itself is not known. An answer tells.
		return errors.New("the old process went away in between")
	}
	return fmt.Errorf("the old process: %w", err)
}

func (d *daemon) takeHead(h *handedHead, files []*os.File) error {
	if len(files) != 2 {
		return errors.New("the socket of the daemon is missing")
	}
	l, err := net.FileListener(files[0])
	if err != nil {
		return err
	}
	var ok bool
	if d.listener, ok = l.(*net.UnixListener); !ok {
		return errors.New("the socket of the daemon is another one")
	}
	d.listener.SetUnlinkOnClose(false)
	files[0].Close()
	d.lock = files[1]
	d.journal.load(h.Journal)
	return nil
}

func (d *daemon) takeBox(h *handedBox, files []*os.File) (*box, error) {
	b, err := d.newBox(h.ID, h.Record)
	if err != nil {
		return nil, err
	}
	b.stored = true
	d.boxes[h.ID] = b
	if len(files) == 0 {
		return b, nil
	}
	socks, err := takeSockets(files[1:])
	if err != nil {
		return nil, err
	}
	r := &router{ns: files[0], sockets: socks}
	r.ctx, r.cancel = context.WithCancel(d.ctx)
	b.router = r
	if !d.root {
		return b, nil // R is of another user namespace
	}
	return b, within(r.ns, installRules)
}

// takeSockets makes the sockets of a router from descriptors.
func takeSockets(files []*os.File) (s sockets, err error) {
	if len(files) < 3 {
		return s, errors.New("sockets of a sandbox are missing")
	}
	if s.tcp, err = fileListener(files[0]); err != nil {
		return s, err
	}
	if s.udp, err = filePackets(files[1]); err != nil {
		return s, err
	}
	s.raw = files[2]
	if len(files) > 3 {
		// os.NewFile finds out by itself that it does not block.
		s.log = files[3]
	}
	return s, nil
}

func (b *box) takeConn(h *handedConn, files []*os.File) error {
	if len(files) == 0 {
		return errors.New("a connection without a socket")
	}
	inner, err := fileConn(files[0])
	if err != nil {
		return err
	}
	c := b.newConn(b.router, inner, h.Dst)
	c.target, c.filter, c.checked, c.said, c.watch = h.Target, h.Filter, h.Checked, h.Said, h.Watch
	c.upgrade.Store(h.Upgrade)
	c.up.pending, c.up.done = h.Up.Pending, h.Up.Done
	c.down.pending, c.down.done = h.Down.Pending, h.Down.Done
	if len(files) > 1 {
		if c.outer, err = fileConn(files[1]); err != nil {
			return err
		}
	}
	b.conns[c] = struct{}{}
	b.d.room.Add(-1)
	return nil
}

func (b *box) takeFlow(h *handedFlow, files []*os.File) error {
	if len(files) != 1 {
		return errors.New("a flow without a socket")
	}
	outer, err := filePackets(files[0])
	if err != nil {
		return err
	}
	f := b.newFlow(b.router, flowKey{h.Src, h.Dst})
	f.outer, f.target, f.used = outer, h.Target, time.Now()
	return nil
}

func fileConn(f *os.File) (*net.TCPConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		return tcp, nil
	}
	c.Close()
	return nil, errors.New("a socket is no connection")
}

func fileListener(f *os.File) (*net.TCPListener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.(*net.TCPListener); ok {
		return tcp, nil
	}
	l.Close()
	return nil, errors.New("a socket does not listen")
}

func filePackets(f *os.File) (*net.UDPConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if udp, ok := c.(*net.UDPConn); ok {
		return udp, nil
	}
	c.Close()
	return nil, errors.New("a socket is not for packets")
}
