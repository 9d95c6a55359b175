package sandbox

import (
	"context"
	"math"
	"sync"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Quota.SavedBytes bounds what a member keeps besides the disks of sandboxes:
// the layers of their snapshots, imports, checkpoints and forks. How large a
// layer is shows when it is there, so it is measured first and thrown away when
// it is too large. Admins have no such bound.

// unrecorded are the sizes of layers that were granted and have no record yet,
// by principal. The zero value is ready.
type unrecorded struct {
	mu    sync.Mutex
	bytes map[string]int64
}

func (u *unrecorded) add(who string, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bytes == nil {
		u.bytes = map[string]int64{}
	}
	if u.bytes[who] += n; u.bytes[who] == 0 {
		delete(u.bytes, who)
	}
}

// saveRoom is how many bytes the actor may still keep. The caller holds no
// lock; grant decides.
func (a *Actor) saveRoom(ctx context.Context) (int64, error) {
	quota := a.e.cfg.MemberQuota.SavedBytes
	if quota == 0 || a.who.IsAdmin() {
		return math.MaxInt64, nil
	}
	held, err := a.savedBytes(ctx)
	if err != nil {
		return 0, err
	}
	if held >= quota {
		return 0, a.saved(held, 0)
	}
	return quota - held, nil
}

// grant counts size bytes for the actor until recorded is called, or refuses
// them.
func (a *Actor) grant(ctx context.Context, size int64) (recorded func(), err error) {
	quota := a.e.cfg.MemberQuota.SavedBytes
	if quota == 0 || a.who.IsAdmin() {
		return func() {}, nil
	}
	// One after the other, so that two that fit alone are not both granted.
	unlock, err := a.e.claims.turn.lock(ctx, "saved "+a.who.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	held, err := a.savedBytes(ctx)
	if err != nil {
		return nil, err
	}
	if size > quota-held {
		return nil, a.saved(held, size)
	}
	a.e.unrecorded.add(a.who.ID, size)
	return sync.OnceFunc(func() { a.e.unrecorded.add(a.who.ID, -size) }), nil
}

func (a *Actor) savedBytes(ctx context.Context) (int64, error) {
	// In this order: what is recorded in between counts twice and not never.
	a.e.unrecorded.mu.Lock()
	held := a.e.unrecorded.bytes[a.who.ID]
	a.e.unrecorded.mu.Unlock()
	recorded, err := a.e.cfg.Store.SavedBytes(ctx, a.who.ID)
	return held + recorded, err
}

func (a *Actor) saved(held, more int64) error {
	asked := ""
	if more > 0 {
		asked = " and this is " + FormatBytes(more) + " more"
	}
	return fault.New(fault.Exhausted, "you keep %s in snapshots, checkpoints and forks%s; you may keep %s. Delete some first",
		FormatBytes(held), asked, FormatBytes(a.e.cfg.MemberQuota.SavedBytes)).About("snapshot")
}

// keepLayer is saveLayer for a layer that is going to be the actor's. recorded
// is called when its record is written, or is not going to be.
func (a *Actor) keepLayer(ctx context.Context, s *Sandbox) (l Layer, recorded func(), err error) {
	if _, err := a.saveRoom(ctx); err != nil { // before anything long is begun
		return Layer{}, nil, err
	}
	if l, err = a.e.saveLayer(ctx, s); err != nil {
		return l, nil, err
	}
	if recorded, err = a.grant(ctx, l.SizeBytes); err != nil {
		a.e.discard(l.ID)
	}
	return l, recorded, err
}
