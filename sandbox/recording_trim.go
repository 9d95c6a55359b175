package sandbox

import (
	"container/heap"
	"context"
	"slices"
)

// Of too much, what goes is of whoever has most, the oldest first: nobody loses
// a recording to what others keep as long as their own are no more than an equal
// share of the space. Who has more than that in recordings that are being made,
// which stay, takes nothing from others: those recordings miss what comes next.

// recordingOwner is a principal with recordings.
type recordingOwner struct {
	bytes int64       // of all of them
	ended []Recording // those that may go, the oldest first
}

// recordingOwners is a heap of owners; who has most is on top.
type recordingOwners []*recordingOwner

func (h recordingOwners) Len() int           { return len(h) }
func (h recordingOwners) Less(i, j int) bool { return h[i].bytes > h[j].bytes }
func (h recordingOwners) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *recordingOwners) Push(x any)        { *h = append(*h, x.(*recordingOwner)) }
func (h *recordingOwners) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// trim removes what is too old, and of too much what goes first: down to a little
// less than what may be kept, so that not every byte has to look again. need is
// how much room owner wants besides.
func (r *recordings) trim(ctx context.Context, owner string, need int64) {
	r.trimming.Lock()
	defer r.trimming.Unlock()
	used, most := r.recount()+need, r.e.cfg.RecordingsMax
	over := used > most
	before := r.e.cfg.Now().Add(-r.e.cfg.RecordingsKeep)
	filter := RecordingFilter{Before: before}
	if over {
		filter = RecordingFilter{}
	}
	all, _, err := r.e.cfg.Store.Recordings(ctx, filter)
	if err != nil {
		r.e.cfg.Log.Warn("list old recordings", "err", err)
		return
	}
	all = slices.DeleteFunc(all, func(rec Recording) bool {
		if rec.EndedAt.IsZero() || !rec.EndedAt.Before(before) {
			return false
		}
		if r.discard(ctx, rec, "it was kept for "+FormatDuration(r.e.cfg.RecordingsKeep)) {
			used -= rec.Bytes
		}
		return true
	})
	if over {
		if need > 0 { // as one more that is being made
			all = append(all, Recording{Owner: owner, Bytes: need})
		}
		r.share(ctx, all, used, most*9/10)
	}
	r.recount()
}

// share removes recordings until what is used is no more than goal, or nobody
// has more than their share of it but in recordings that stay.
func (r *recordings) share(ctx context.Context, all []Recording, used, goal int64) {
	slices.SortFunc(all, func(a, b Recording) int { return a.EndedAt.Compare(b.EndedAt) })
	byName := map[string]*recordingOwner{}
	var owners recordingOwners
	for _, rec := range all {
		o := byName[rec.Owner]
		if o == nil {
			o = new(recordingOwner)
			byName[rec.Owner], owners = o, append(owners, o)
		}
		o.bytes += r.now(rec).Bytes
		if !rec.EndedAt.IsZero() {
			o.ended = append(o.ended, rec)
		}
	}
	each := goal / int64(max(1, len(owners)))
	heap.Init(&owners)
	for used > goal && len(owners) > 0 && owners[0].bytes > each {
		o := owners[0]
		if len(o.ended) == 0 {
			heap.Pop(&owners)
			continue
		}
		rec := o.ended[0]
		o.ended = o.ended[1:]
		if r.discard(ctx, rec, "there is no room, and of its owner there is most: "+FormatBytes(o.bytes)) {
			used -= rec.Bytes
			o.bytes -= rec.Bytes
			heap.Fix(&owners, 0)
		}
	}
}

// discard removes a recording that is not kept any more, and tells why.
func (r *recordings) discard(ctx context.Context, rec Recording, why string) bool {
	if err := r.remove(ctx, rec.ID); err != nil {
		r.e.cfg.Log.Warn("remove an old recording", "recording", rec.ID, "err", err)
		return false
	}
	r.e.cfg.Log.Info("removed an old recording", "recording", rec.ID, "owner", rec.Owner, "sandbox", rec.SandboxID, "bytes", rec.Bytes, "why", why)
	r.e.changed("recording remove", AuditRecord{Target: rec.ID, Owner: rec.Owner, Sandbox: rec.SandboxID, Reason: why}, nil)
	return true
}
