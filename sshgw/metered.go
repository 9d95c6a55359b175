package sshgw

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// errIdle is why a channel was closed on which nothing went for too long.
var errIdle = errors.New("nothing was sent for too long")

// meteredOpen is a channel that a client wants to open: what becomes of it goes
// into its record.
type meteredOpen struct {
	gossh.NewChannel
	c   *conn
	rec *record
}

func (o *meteredOpen) Accept() (gossh.Channel, <-chan *gossh.Request, error) {
	ch, requests, err := o.NewChannel.Accept()
	if err != nil {
		return nil, nil, err
	}
	if !o.rec.session { // of a session it is told when it runs something
		o.c.mu.Lock()
		where := o.c.where
		o.c.mu.Unlock()
		if where != nil {
			o.rec.where(where.sandbox())
		}
		o.rec.start()
	}
	return o.c.meter(ch, o.rec), requests, nil
}

func (o *meteredOpen) Reject(reason gossh.RejectionReason, message string) error {
	o.rec.end(errors.New(message))
	return o.NewChannel.Reject(reason, message)
}

// openChannel opens a channel to the client, metered as those it opens itself.
func (c *conn) openChannel(sc *gossh.ServerConn, kind string, extra []byte, rec *record) (gossh.Channel, <-chan *gossh.Request, error) {
	ch, requests, err := sc.OpenChannel(kind, extra)
	if err != nil {
		rec.end(err)
		return nil, nil, err
	}
	rec.start()
	return c.meter(ch, rec), requests, nil
}

// meteredChannel counts what goes through a channel, for the audit log, for
// what the connection holds, and to notice that nothing goes any more.
type meteredChannel struct {
	gossh.Channel
	rec  *record
	flow *inflow

	reading atomic.Bool  // somebody is in Read, so nothing waits to be read
	base    atomic.Int64 // flow.gone when nothing waited last
	active  atomic.Int64 // when a byte went last, in Unix nanoseconds; 0 where nobody asks
}

// meter wraps an open channel. It is closed if it is idle for longer than its
// kind may be.
func (c *conn) meter(ch gossh.Channel, rec *record) gossh.Channel {
	m := &meteredChannel{Channel: ch, rec: rec, flow: &c.flow}
	m.base.Store(c.flow.gone())
	c.flow.add(m)
	rec.mu.Lock()
	rec.ch = m
	rec.mu.Unlock()
	idle := c.srv.cfg.Limits.ForwardIdle
	if rec.session {
		idle = c.srv.cfg.Limits.SessionIdle
	}
	if idle > 0 {
		m.active.Store(time.Now().UnixNano())
		c.watchIdle(m, idle)
	}
	return m
}

// recordOf returns the record of a channel that was opened through here.
func recordOf(ch gossh.Channel) *record {
	if m, ok := ch.(*meteredChannel); ok {
		return m.rec
	}
	return nil
}

func (m *meteredChannel) Read(p []byte) (int, error) {
	m.reading.Store(true)
	n, err := m.Channel.Read(p)
	m.reading.Store(false)
	m.rec.in.Add(int64(n))
	m.flow.take(n)
	if n < len(p) {
		m.base.Store(m.flow.gone()) // the library returns less only when it has no more
	}
	m.touch(n)
	return n, err
}

func (m *meteredChannel) Write(p []byte) (int, error) {
	n, err := m.Channel.Write(p)
	m.rec.out.Add(int64(n))
	m.touch(n)
	return n, err
}

func (m *meteredChannel) Stderr() io.ReadWriter { return meteredStderr{m.Channel.Stderr(), m} }

// SendRequest notes how the process of a session has ended.
func (m *meteredChannel) SendRequest(name string, wantReply bool, payload []byte) (bool, error) {
	switch name {
	case "exit-status":
		var status struct{ Status uint32 }
		if gossh.Unmarshal(payload, &status) == nil {
			m.rec.exit(int(status.Status), "")
		}
	case "exit-signal":
		var signal struct {
			Name string
			Rest []byte `ssh:"rest"`
		}
		if gossh.Unmarshal(payload, &signal) == nil {
			m.rec.exit(0, signal.Name)
		}
	}
	return m.Channel.SendRequest(name, wantReply, payload)
}

func (m *meteredChannel) touch(n int) {
	if n > 0 && m.active.Load() != 0 {
		m.active.Store(time.Now().UnixNano())
	}
}

type meteredStderr struct {
	io.ReadWriter
	m *meteredChannel
}

func (s meteredStderr) Write(p []byte) (int, error) {
	n, err := s.ReadWriter.Write(p)
	s.m.rec.out.Add(int64(n))
	s.m.touch(n)
	return n, err
}

// watchIdle closes the channel once nothing went through it for so long.
// Neither keepalives nor requests count.
func (c *conn) watchIdle(m *meteredChannel, most time.Duration) {
	c.wg.Go(func() {
		defer contain(c.log, "idle channel", nil)
		wait := time.NewTimer(most)
		defer wait.Stop()
		for {
			select {
			case <-c.ctx.Done():
				return
			case <-m.rec.done:
				return
			case <-wait.C:
			}
			left := most - time.Since(time.Unix(0, m.active.Load()))
			if left <= 0 {
				m.rec.because(errIdle)
				_, _ = io.WriteString(m.Channel.Stderr(), "\r\nsandgate: "+errIdle.Error()+"; the channel is closed\r\n")
				_ = m.Channel.Close()
				return
			}
			wait.Reset(left)
		}
	})
}

// inflow knows how much of what a client has sent waits in memory because
// nobody takes it. The library buffers up to 2 MiB of data for each channel,
// in packets as the client has cut them: of one byte each, if it likes, with
// some 50 bytes around every one. So what is counted is what came over the
// network and has not been read from a channel: at most that, twice over, is
// in memory.
type inflow struct {
	received func() int64 // bytes that came over the network
	taken    atomic.Int64 // what of them was read from channels

	mu       sync.Mutex
	channels map[*meteredChannel]struct{}
}

// packetOverhead is about what one packet has around its data.
const packetOverhead = 48

// take counts data that was read from a channel, and what was around it.
func (f *inflow) take(n int) {
	if n > 0 {
		f.taken.Add(int64(n) + packetOverhead*int64(1+n>>15))
	}
}

// gone is what came and was not read; only the difference of two moments
// means anything.
func (f *inflow) gone() int64 { return f.received() - f.taken.Load() }

func (f *inflow) add(m *meteredChannel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.channels == nil {
		f.channels = make(map[*meteredChannel]struct{})
	}
	f.channels[m] = struct{}{}
}

func (f *inflow) remove(m *meteredChannel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.channels, m)
}

// held is at most how much waits.
func (f *inflow) held() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, most := f.gone(), int64(0)
	for m := range f.channels {
		if !m.reading.Load() {
			most = max(most, now-m.base.Load())
		}
	}
	return most
}
