package sshgw

import (
	"context"
	"fmt"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// channelKind tells channels apart that are counted apart.
type channelKind int

const (
	sessionChannel channelKind = iota
	forwardChannel
)

// channel serves one channel, unless the connection has ended.
func (c *conn) channel(sc *gossh.ServerConn, nc gossh.NewChannel, serve func(*conn, *gossh.ServerConn, gossh.NewChannel)) {
	if !c.enter() {
		_ = nc.Reject(gossh.ConnectionFailed, errGone.Error())
		return
	}
	defer c.wg.Done()
	defer contain(c.log, "channel", func() { _ = sc.Close() })
	c.watch(sc)
	if j, joins := joinerOf(sc.Permissions); joins {
		c.serveJoin(sc, nc, j)
		return
	}
	c.announce(sc)
	if c.overLimit {
		_ = nc.Reject(gossh.ResourceShortage, fmt.Sprintf(
			"you have more than %d connections open; close some", c.srv.cfg.Limits.ConnectionsPerPrincipal))
		_ = sc.Close()
		return
	}
	if !c.ask() {
		_ = sc.Close()
		return
	}
	defer c.asked.Add(-1)
	rec := c.auditChannel(nc)
	defer rec.end(nil)
	nc = &meteredOpen{nc, c, rec}
	if err := c.recheck(c.ctx, sc); err != nil {
		_ = nc.Reject(gossh.Prohibited, sayError(err))
		_ = sc.Close()
		return
	}
	serve(c, sc, nc)
}

// recheck asks whether the key that let the client in is still good. With an
// error the caller tells the client and closes the connection.
func (c *conn) recheck(ctx context.Context, sc *gossh.ServerConn) error {
	who, ok := principalOf(sc.Permissions)
	if !ok {
		return fault.New(fault.Denied, "this connection is not authenticated")
	}
	if c.jump != nil {
		if err := c.jump.outer.recheck(ctx, c.jump.sc); err != nil {
			return err
		}
	}
	if c.srv.cfg.Recheck == nil {
		return nil
	}
	err := c.srv.cfg.Recheck(ctx, who)
	if err != nil {
		c.log.Info("ssh key no longer accepted", "principal", who.ID, "key", who.KeyID, "err", quoted(err.Error()))
	}
	return err
}

// serveUnknown refuses the kinds of channels that end nowhere here.
func (c *conn) serveUnknown(_ *gossh.ServerConn, nc gossh.NewChannel) {
	_ = nc.Reject(gossh.UnknownChannelType, "the gateway does not serve this kind of channel")
}

// acquire takes a place for a channel; with refusal the place was not given.
func (c *conn) acquire(kind channelKind) (release func(), refusal string) {
	most := c.srv.cfg.Limits.SessionsPerConnection
	if kind == forwardChannel {
		most = c.srv.cfg.Limits.ForwardsPerConnection
	}
	if refusal := c.srv.full(); refusal != "" {
		return nil, refusal
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopping:
		return nil, errStopping.Error()
	case c.channels[kind] >= most:
		return nil, fmt.Sprintf("this connection has %d of these open already; close some or open another connection", most)
	}
	if refusal := c.srv.take(c.holder, kind); refusal != "" {
		return nil, refusal
	}
	c.channels[kind]++
	return func() {
		c.srv.give(c.holder, kind)
		c.mu.Lock()
		c.channels[kind]--
		c.lastUsed = c.srv.cfg.Now()
		c.mu.Unlock()
	}, ""
}

// watch asks the client for signs of life from now on, and closes the
// connection when they stay away. It is called again and again.
//
// The library's request has no deadline and blocks all later ones, so a
// missing answer always ends the connection.
func (c *conn) watch(sc *gossh.ServerConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched || c.closed {
		return
	}
	c.watched = true
	c.wg.Go(func() {
		defer contain(c.log, "keepalive", func() { _ = c.wire.Close() })
		c.keepAlive(sc)
	})
}

func (c *conn) keepAlive(sc *gossh.ServerConn) {
	l := c.srv.cfg.Limits
	tick := time.NewTicker(l.Keepalive)
	defer tick.Stop()
	for seen := c.wire.in.Load(); ; {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		// Bytes that arrived are a sign of life too.
		if now := c.wire.in.Load(); now != seen {
			seen = now
			continue
		}
		answered := make(chan struct{})
		c.wg.Go(func() {
			defer close(answered)
			_, _, _ = sc.SendRequest("keepalive@openssh.com", true, nil)
		})
		late := time.NewTimer(l.Keepalive * time.Duration(l.KeepaliveMisses))
		select {
		case <-answered:
			late.Stop()
		case <-c.ctx.Done():
			late.Stop()
			return
		case <-late.C:
			c.log.Info("ssh client does not answer", "for", l.Keepalive*time.Duration(l.KeepaliveMisses))
			_ = c.wire.Close()
			return
		}
		seen = c.wire.in.Load()
	}
}

// door is where a connection leads: a sandbox, or the control account when ref
// is empty.
type door struct {
	ref     string
	ops     sandbox.Operations
	who     keys.Principal
	session string // the named session that is asked for, "" for none
	account string // the user inside the sandbox, "" for its default
	id      string // of the sandbox, where it is known
	user    string // the user name; of foreign origin
}

// sandbox names where it leads, by id where that is known.
func (d door) sandbox() string {
	if d.id != "" {
		return d.id
	}
	return d.ref
}

// fallback reports whether the control account was reached by a name that may
// have been meant for a sandbox.
func (d door) fallback() bool { return d.user != d.who.ID && d.user != controlUser }

// enterDoor finds out where the connection leads, by the rules of the package
// comment. The answer stays the same for the life of the connection.
func (c *conn) enterDoor(ctx context.Context, sc *gossh.ServerConn) (door, error) {
	c.mu.Lock()
	known := c.where
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	who, ok := principalOf(sc.Permissions)
	if !ok {
		return door{}, fault.New(fault.Denied, "this connection is not authenticated")
	}
	t, err := c.target(sc.User())
	if err != nil {
		return door{}, err
	}
	d := door{ref: t.ref, ops: c.srv.cfg.As(who), who: who, session: t.session, account: t.account, user: sc.User()}
	if t.isID {
		d.id = t.ref
	} else if t.ref != "" {
		box, err := d.ops.Get(ctx, t.ref)
		switch {
		case fault.Is(err, fault.NotFound) && !t.sure():
			d.ref = ""
		case err != nil && !fault.Is(err, fault.NotFound):
			return door{}, err
		}
		d.id = box.ID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.where == nil {
		c.where = &d
	}
	return *c.where, nil
}
