package sshgw

import (
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
)

// Bounds of what a client says, in the audit log.
const (
	maxAuditWord    = 128  // names, versions, reasons
	maxAuditTarget  = 300  // addresses and paths
	maxAuditCommand = 1024 // command lines, where they are kept
)

// record is one piece of a connection's business, told to the audit log when
// it begins and when it ends. All methods may be called by any goroutine, and
// on nil.
type record struct {
	c       *conn
	channel int64 // counts within the connection; 0: no channel
	session bool  // it is a session channel
	began   time.Time
	in, out atomic.Int64  // bytes from and to the client
	done    chan struct{} // closed at the end

	mu      sync.Mutex
	r       sandbox.AuditRecord // what is known so far
	started bool                // the beginning is told
	over    bool
	reason  error           // why it ends, where that is known before
	ch      *meteredChannel // what it is the record of, if that is open
}

// audit makes the record of something that a client asks for: "exec",
// "forward", "listen", "agent", … Nothing is told before start, refuse or end.
func (c *conn) audit(what string) *record {
	return &record{c: c, began: c.srv.cfg.Now(), done: make(chan struct{}), r: sandbox.AuditRecord{What: what}}
}

// where says which sandbox it is about; the reference is of foreign origin unless
// it is an id.
func (r *record) where(ref string) *record {
	return r.set(func(a *sandbox.AuditRecord) { a.Sandbox = auditText(ref, maxAuditWord) })
}

// target says what is reached: an address, a path, a subsystem.
func (r *record) target(what string) *record {
	return r.set(func(a *sandbox.AuditRecord) { a.Target = auditText(what, maxAuditTarget) })
}

// named says which session is used.
func (r *record) named(name string) *record {
	return r.set(func(a *sandbox.AuditRecord) { a.Session = auditText(name, maxAuditWord) })
}

// command says what is run and whether on a terminal. The text is kept only
// where the configuration says so.
func (r *record) command(kind, line string, tty bool) *record {
	return r.set(func(a *sandbox.AuditRecord) {
		a.What, a.TTY = kind, tty
		if r.c.srv.cfg.AuditCommands {
			a.Command = auditText(line, maxAuditCommand)
		}
	})
}

// exit notes how a process ended.
func (r *record) exit(code int, signal string) *record {
	return r.set(func(a *sandbox.AuditRecord) {
		if a.Signal = auditText(signal, maxAuditWord); signal == "" {
			a.Exit = &code
		}
	})
}

// because notes why it will end.
func (r *record) because(err error) *record {
	if r != nil && err != nil {
		r.mu.Lock()
		r.reason = err
		r.mu.Unlock()
	}
	return r
}

func (r *record) set(change func(*sandbox.AuditRecord)) *record {
	if r != nil {
		r.mu.Lock()
		change(&r.r)
		r.mu.Unlock()
	}
	return r
}

// start tells that it has begun.
func (r *record) start() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started || r.over {
		return
	}
	r.started, r.began = true, r.c.srv.cfg.Now()
	a := r.r
	a.Kind, a.Channel = sandbox.AuditStart, r.channel
	r.c.emit(a)
	r.c.visit(r.r.Sandbox)
}

// end tells that it has ended, and why when there is something to say. What was
// not started is told as refused. Calls after the first do nothing.
func (r *record) end(err error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.over = true
	close(r.done)
	if r.ch != nil {
		r.c.flow.remove(r.ch)
	}
	if err == nil {
		err = r.reason
	}
	a := r.r
	a.Kind, a.Channel = sandbox.AuditEnd, r.channel
	a.In, a.Out = r.in.Load(), r.out.Load()
	if err != nil {
		a.Reason = auditText(err.Error(), maxAuditTarget)
	}
	if !r.started {
		if a.Reason == "" {
			return // nothing was asked for
		}
		a.Kind = sandbox.AuditRefused
		r.c.emitRefused(a)
		return
	}
	a.DurationMS = r.c.srv.cfg.Now().Sub(r.began).Milliseconds()
	r.c.emit(a)
	r.c.visited(&a)
}

// emit fills in who it is and hands the record over.
func (c *conn) emit(a sandbox.AuditRecord) {
	if c.srv.cfg.Audit == nil {
		return
	}
	a.Time, a.Door, a.Remote, a.Connection = c.srv.cfg.Now(), "ssh", c.remote, c.id
	c.mu.Lock()
	who := c.who
	c.mu.Unlock()
	if who.Principal != "" {
		a.Principal, a.Role, a.Key, a.Certificate = who.Principal, who.Role, who.Key, who.Certificate
		a.User, a.Client = who.User, who.Client
	}
	c.srv.cfg.Audit(a)
}

// emitRefused is emit for what costs the client nothing to repeat: so many a
// second, and how many were left out.
func (c *conn) emitRefused(a sandbox.AuditRecord) {
	if skipped, ok := c.srv.refusals.take(); ok {
		a.Unlogged = skipped
		c.emit(a)
	}
}

// identity is who a connection turned out to be, as the audit log names it.
type identity struct{ Principal, Role, Key, Certificate, User, Client string }

// newConnectionID names a connection in the audit log.
func newConnectionID() string { return strings.ToLower(rand.Text()[:12]) }

// begins tells that a session runs something, and where; with err it does not
// get so far.
func (s *session) begins(d door, kind, line string, err error) {
	rec := recordOf(s.ch)
	if err != nil {
		rec.command(kind, line, s.tty != nil).because(err)
		return
	}
	if d.ref == "" && kind != "api" {
		kind = "command" // of the command tree
	}
	rec.command(kind, line, s.tty != nil).where(d.sandbox()).named(d.session).start()
}

// visits counts what a connection did in each sandbox.
type visits map[string]*sandbox.AuditRecord

// maxVisits bounds the sandboxes that are counted apart: one connection can
// reach many by jumping.
const maxVisits = 64

// visit tells that the connection uses a sandbox, the first time it does.
func (c *conn) visit(ref string) {
	if ref == "" {
		return
	}
	c.mu.Lock()
	_, known := c.visits[ref]
	full := len(c.visits) >= maxVisits
	if !known && !full {
		if c.visits == nil {
			c.visits = make(visits)
		}
		c.visits[ref] = &sandbox.AuditRecord{Kind: sandbox.AuditDisconnect, Sandbox: ref, Time: c.srv.cfg.Now()}
	}
	c.mu.Unlock()
	if !known && !full {
		c.emit(sandbox.AuditRecord{Kind: sandbox.AuditConnect, Sandbox: ref})
	}
}

// visited counts what has ended.
func (c *conn) visited(a *sandbox.AuditRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.visits[a.Sandbox]
	if v == nil {
		return
	}
	v.In += a.In
	v.Out += a.Out
	switch a.What {
	case "forward", "listen", "agent":
		v.Forwards++
	default:
		v.Sessions++
	}
}

// identify notes who it is, once that is proven, and tells it.
func (c *conn) identify(m gossh.ConnMetadata, p keys.Principal) {
	c.mu.Lock()
	c.who = identity{
		Principal: p.ID, Role: string(p.Role), Key: p.KeyID, Certificate: certificateText(p.Certificate),
		User: auditText(m.User(), maxAuditWord), Client: auditText(string(m.ClientVersion()), maxAuditWord),
	}
	c.mu.Unlock()
	c.emit(sandbox.AuditRecord{Kind: sandbox.AuditLogin, Target: c.through(), DurationMS: c.srv.cfg.Now().Sub(c.began).Milliseconds()})
}

// certificateText names a certificate, if there is one.
func certificateText(c keys.Certificate) string {
	if c == (keys.Certificate{}) {
		return ""
	}
	return auditText(c.ID, maxAuditWord) + " serial " + strconv.FormatUint(c.Serial, 10)
}

// through names the connection that this one came through, if it did.
func (c *conn) through() string {
	if c.jump == nil {
		return ""
	}
	return "jump:" + c.jump.outer.id
}

// turnedAway tells of a connection that has ended without a login.
func (c *conn) turnedAway() {
	a := sandbox.AuditRecord{Kind: sandbox.AuditRefused, What: "login", Target: c.through(), DurationMS: c.srv.cfg.Now().Sub(c.began).Milliseconds()}
	switch c.failure() {
	case noFailure:
		return
	case failedLate:
		a.Reason = "it took too long, or had to make room for others"
	case failedFlood:
		a.Reason = errStranger.Error()
	case failedSilent:
		a.Reason = "it left without a login"
	default:
		a.Reason = auditText(c.turned, maxAuditTarget)
	}
	a.Key, a.User = c.offer.key, auditText(c.offer.user, maxAuditWord)
	a.Client = auditText(c.wire.ident, maxAuditWord)
	c.emitRefused(a)
}

// farewell tells what the connection did in each sandbox, and that it is over.
func (c *conn) farewell() {
	c.mu.Lock()
	all, name := c.visits, c.who.Principal
	c.visits = nil
	c.mu.Unlock()
	now := c.srv.cfg.Now()
	for _, v := range all {
		v.DurationMS = now.Sub(v.Time).Milliseconds()
		c.emit(*v)
	}
	if name == "" {
		c.turnedAway()
		return
	}
	a := sandbox.AuditRecord{Kind: sandbox.AuditLogout, In: c.wire.in.Load(), Out: c.wire.out.Load(), DurationMS: now.Sub(c.began).Milliseconds()}
	if why := cause(c.ctx); errors.Is(why, errStopping) {
		a.Reason = why.Error()
	}
	c.emit(a)
}

// auditText makes text of foreign origin fit for a record.
func auditText(s string, most int) string { return sandbox.AuditText(s, most) }
