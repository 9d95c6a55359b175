package sandbox

import (
	"strconv"
	"sync"
	"time"

	"github.com/sandgate/sandgate/keys"
)

// Bounds of what a client says, in the audit log.
const (
	maxAuditWord   = 128
	maxAuditReason = 300
	// maxAuditRefusals bounds those of a second: they cost a client nothing.
	maxAuditRefusals = 20
)

// changed tells the audit log that the actor has changed who may come in, or
// what is kept of what they did; with err, that they were not let. Target,
// Owner and Sandbox of r say what was changed.
func (a *Actor) changed(what string, r AuditRecord, err error) {
	p := a.who
	r.Principal, r.Role, r.Key, r.Door = p.ID, string(p.Role), p.KeyID, p.Door
	if p.Certificate != (keys.Certificate{}) {
		r.Certificate = AuditText(p.Certificate.ID, maxAuditWord) + " serial " + strconv.FormatUint(p.Certificate.Serial, 10)
	}
	a.e.changed(what, r, err)
}

// changedGroup is changed for a project or an org; who is added or removed, if
// it is about somebody.
func (a *Actor) changedGroup(kind GroupKind, how, name, who string, err error) {
	if kind != OrgGroup {
		kind = ProjectGroup
	}
	a.changed(string(kind)+" "+how, AuditRecord{Target: name, Owner: who}, err)
}

// changed is that of somebody who is not an Actor, or of the server itself.
func (e *Engine) changed(what string, r AuditRecord, err error) {
	if e.cfg.AuditSink == nil {
		return
	}
	r.Time, r.Kind, r.What = e.cfg.Now(), AuditChange, what
	r.Target, r.Owner = AuditText(r.Target, maxAuditWord), AuditText(r.Owner, maxAuditWord)
	if err != nil {
		var ok bool
		if r.Unlogged, ok = e.refusals.take(r.Time); !ok {
			return
		}
		r.Kind, r.Reason = AuditRefused, AuditText(err.Error(), maxAuditReason)
	}
	e.cfg.AuditSink(r)
}

// auditRefusals bounds the refusals that are told. The zero value is ready.
type auditRefusals struct {
	mu            sync.Mutex
	second        int64
	told, skipped int
}

// take takes one of those of this second, and says how many were left out since
// the last one.
func (l *auditRefusals) take(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := now.Unix(); s != l.second {
		l.second, l.told = s, 0
	}
	if l.told >= maxAuditRefusals {
		l.skipped++
		return 0, false
	}
	l.told++
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}
