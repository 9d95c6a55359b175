package sshgw

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// maxStranger is how many bytes a client may send before it is authenticated:
// each key exchange costs the gateway far more than the client, and nothing
// else keeps it from asking for one after the other.
const maxStranger = 512 << 10

// spareOpens is how many channels may be asked for on top of those that may be
// open. The library serves each request to open one at once, however many
// there are, and a client that reads no answers would fill the memory with
// them.
const spareOpens = 256

// checkEvery is after how many bytes it is looked at what a connection holds.
const checkEvery = 64 << 10

var (
	errStranger = errors.New("too much was sent before authentication")
	errHolds    = errors.New("the connection has sent more than is taken from it")
	errUnused   = errors.New("nothing was open for too long")
	errOpens    = errors.New("too many channels were asked for")
)

// arrived is told how many bytes the connection has received so far. An error
// ends it.
func (c *conn) arrived(n int64) error {
	if !c.known.Load() {
		if n > maxStranger {
			c.flooded.Store(true)
			return errStranger
		}
		return nil
	}
	if n-c.checked < checkEvery {
		return nil
	}
	c.checked = n
	return c.srv.holds(c)
}

// ask counts a channel that a client asks for; false for one too many, which
// ends the connection.
func (c *conn) ask() bool {
	l := c.srv.cfg.Limits
	if c.asked.Add(1) <= int64(l.SessionsPerConnection+l.ForwardsPerConnection+spareOpens) {
		return true
	}
	c.asked.Add(-1)
	c.expel(errOpens)
	return false
}

// expel ends the connection because of what its client does.
func (c *conn) expel(why error) {
	c.log.Warn("ssh connection ended", "principal", c.holder, "err", why)
	rec := c.audit("connection")
	rec.end(why)
	_ = c.wire.Close()
}

// watchUnused ends the connection once it has had no channel for too long:
// none is open, nothing listens for it, and nobody jumps through it.
func (c *conn) watchUnused() {
	most := c.srv.cfg.Limits.Unused
	if most <= 0 {
		return
	}
	c.mu.Lock()
	c.lastUsed = c.srv.cfg.Now()
	c.mu.Unlock()
	c.wg.Go(func() {
		defer contain(c.log, "unused connection", nil)
		wait := time.NewTimer(most)
		defer wait.Stop()
		for {
			select {
			case <-c.ctx.Done():
				return
			case <-wait.C:
			}
			c.mu.Lock()
			used := c.channels != [2]int{} || c.jumps > 0
			left := most - c.srv.cfg.Now().Sub(c.lastUsed)
			c.mu.Unlock()
			switch {
			case used:
				wait.Reset(most)
			case left > 0:
				wait.Reset(left)
			default:
				c.expel(errUnused)
				return
			}
		}
	})
}

// holds notes what a connection holds. If that, or what all of them hold, is
// too much, the connection that holds most is ended.
func (s *Server) holds(c *conn) error {
	held := c.flow.held()
	total := s.buffered.Add(held - c.held.Swap(held))
	l := s.cfg.Limits
	if held > l.BytesPerConnection {
		c.expel(errHolds)
		return errHolds
	}
	if total <= l.Bytes+l.Bytes/4 {
		return nil
	}
	if s.holdsNow() <= l.Bytes+l.Bytes/4 {
		return nil
	}
	var most *conn
	s.mu.Lock()
	for o := range s.conns {
		if most == nil || o.held.Load() > most.held.Load() {
			most = o
		}
	}
	s.mu.Unlock()
	if most != nil {
		most.expel(errHolds)
	}
	return nil
}

// holdsNow looks anew at what all connections hold.
func (s *Server) holdsNow() int64 {
	s.mu.Lock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		held := c.flow.held()
		s.buffered.Add(held - c.held.Swap(held))
	}
	return s.buffered.Load()
}

// full says why no channel is opened now, for anybody.
func (s *Server) full() string {
	if most := s.cfg.Limits.Bytes; s.buffered.Load() <= most || s.holdsNow() <= most {
		return ""
	}
	return "the gateway holds too much data that nobody takes; try again later"
}

// take takes a place for a channel of a principal.
func (s *Server) take(principal string, kind channelKind) (refusal string) {
	most, what := s.cfg.Limits.SessionsPerPrincipal, "sessions"
	if kind == forwardChannel {
		most, what = s.cfg.Limits.ForwardsPerPrincipal, "forwards"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.using[kind] == nil {
		s.using[kind] = make(map[string]int)
	}
	if s.using[kind][principal] >= most {
		return fmt.Sprintf("you have %d %s open already, over all your connections; close some", most, what)
	}
	s.using[kind][principal]++
	return ""
}

// give gives the place back.
func (s *Server) give(principal string, kind channelKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.using[kind][principal]--; s.using[kind][principal] <= 0 {
		delete(s.using[kind], principal)
	}
}

// auditChannel makes the record of a channel that a client asks for.
func (c *conn) auditChannel(nc gossh.NewChannel) *record {
	what, target := "forward", ""
	switch nc.ChannelType() {
	case "session":
		what = "session"
	case "direct-tcpip":
		target = addressOf(nc.ExtraData())
	case "direct-streamlocal@openssh.com":
		target, _ = parseDirectUnix(nc.ExtraData())
	default:
		what = nc.ChannelType()
		what = auditText(what, maxAuditWord)
	}
	rec := c.audit(what).target(target)
	rec.channel, rec.session = c.told.Add(1), what == "session"
	return rec
}

// addressOf reads the destination of a direct-tcpip channel.
func addressOf(payload []byte) string {
	host, port, err := parseDirectTCP(payload)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
