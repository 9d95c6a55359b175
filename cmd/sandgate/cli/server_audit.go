package cli

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/auditlog"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// auditLog is where a server keeps its audit log: the path of a flag, or the
// default.
func (d stateDir) auditLog() string { return filepath.Join(string(d), "audit.log") }

// openAudit opens the audit log, unless there is to be none.
func (s *server) openAudit() error {
	if s.cfg.auditLog == "off" {
		return nil
	}
	path := s.cfg.auditLog
	if path == "" {
		path = s.cfg.state.auditLog()
	}
	log, err := auditlog.Open(auditlog.Config{Path: path, Log: s.cfg.log})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "--audit-log %s: the audit log cannot be written: %v", path, rootCause(err))
	}
	s.audit = log
	s.closers = append(s.closers, log)
	s.canReload("audit log", path, func(context.Context) (string, error) { return "", log.Reopen() })
	return nil
}

// auditReader is the audit log as the engine reads it; nil without one.
func (s *server) auditReader() sandbox.AuditReader {
	if s.audit == nil {
		return nil
	}
	return s.audit
}

// record takes what the gateway tells of its clients.
func (s *server) record(r sandbox.AuditRecord) {
	if s.audit != nil {
		s.audit.Write(r)
	}
	if r.Kind == sandbox.AuditConnect || r.Kind == sandbox.AuditDisconnect {
		s.visitors.take(r)
	}
}

// visitEvery is how often visits become events.
const visitEvery = time.Second

// visitors turns the visits of connections into events of sandboxes. Agents run
// a command in a connection of its own, again and again: visits that are over
// before they were told are told together, one event for each principal.
type visitors struct {
	tell func(ctx context.Context, sandboxID string, visits ...sandbox.Visit)

	mu      sync.Mutex
	here    map[visitKey]*sandbox.Visit // going on; nil value: told
	over    map[visitKey]*sandbox.Visit // short ones, by sandbox and principal
	ready   map[string][]sandbox.Visit  // to be told, by sandbox
	waiting chan struct{}               // has room for one: there is something
}

// visitKey is a sandbox and a connection, or a principal.
type visitKey struct{ sandbox, who string }

func newVisitors(tell func(ctx context.Context, sandboxID string, visits ...sandbox.Visit)) *visitors {
	return &visitors{
		tell: tell, here: map[visitKey]*sandbox.Visit{}, over: map[visitKey]*sandbox.Visit{},
		ready: map[string][]sandbox.Visit{}, waiting: make(chan struct{}, 1),
	}
}

// take notes that a visit has begun or ended.
func (v *visitors) take(r sandbox.AuditRecord) {
	if v == nil || !sandbox.IsID(r.Sandbox) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	key := visitKey{r.Sandbox, r.Connection}
	visit := sandbox.Visit{Principal: r.Principal, From: r.Remote, Key: r.Key, Began: r.Time, Connections: 1}
	if r.Kind == sandbox.AuditConnect {
		v.here[key] = &visit
	} else {
		visit.Began, visit.Ended = r.Time.Add(-time.Duration(r.DurationMS)*time.Millisecond), r.Time
		visit.Sessions, visit.Forwards, visit.In, visit.Out = r.Sessions, r.Forwards, r.In, r.Out
		untold := v.here[key] != nil
		delete(v.here, key)
		if same := (visitKey{r.Sandbox, r.Principal}); untold {
			v.over[same] = together(v.over[same], visit)
		} else {
			v.ready[r.Sandbox] = append(v.ready[r.Sandbox], visit)
		}
	}
	select {
	case v.waiting <- struct{}{}:
	default:
	}
}

// together adds a visit to others of the same principal.
func together(sum *sandbox.Visit, v sandbox.Visit) *sandbox.Visit {
	if sum == nil {
		return &v
	}
	sum.From, sum.Key, sum.Ended = v.From, v.Key, v.Ended
	sum.Connections++
	sum.Sessions += v.Sessions
	sum.Forwards += v.Forwards
	sum.In += v.In
	sum.Out += v.Out
	return sum
}

// run tells visits until ctx ends.
func (v *visitors) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.waiting:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(visitEvery):
		}
		v.flush(ctx)
	}
}

// flush tells what there is to tell.
func (v *visitors) flush(ctx context.Context) {
	v.mu.Lock()
	for key, visit := range v.here {
		if visit != nil {
			v.ready[key.sandbox] = append(v.ready[key.sandbox], *visit)
			v.here[key] = nil
		}
	}
	for key, visit := range v.over {
		v.ready[key.sandbox] = append(v.ready[key.sandbox], *visit)
	}
	ready := v.ready
	clear(v.over)
	v.ready = map[string][]sandbox.Visit{}
	v.mu.Unlock()
	for id, visits := range ready {
		v.tell(ctx, id, visits...)
	}
}
