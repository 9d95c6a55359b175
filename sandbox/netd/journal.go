package netd

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Refusal is something that a sandbox wanted and did not get.
type Refusal struct {
	Seq     uint64    `json:"seq"` // grows, over restarts too
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox"`
	Kind    Kind      `json:"kind"`
	Proto   string    `json:"proto"`  // "tcp", "udp", "dns", "icmp", …
	Target  string    `json:"target"` // "name:port" where the name is known, or an address
	Reason  string    `json:"reason"` // one clause for a person
	// Rule would have allowed it; empty where none could.
	Rule string `json:"rule,omitempty"`
	// Count is how often it happened. The first time is told at once, what
	// follows within a few seconds is told together.
	Count int `json:"count"`
}

// Kind is the kind of a refusal.
type Kind string

// The kinds.
const (
	Refused Kind = "refused" // the policy does not allow it, or nothing could
	Failed  Kind = "failed"  // allowed, but the other side cannot be reached
	Cut     Kind = "cut"     // a connection that a new policy does not allow any more
)

// Bounds of what is kept for a reader that is away. A sandbox can fill its own
// part alone.
const (
	keptRefusals   = 256
	refusalWindow  = 10 * time.Second
	refusalBurst   = 40
	refusalsASec   = 4
	maxRefusalPage = 1000
)

// journal keeps the refusals of all sandboxes.
type journal struct {
	mu   sync.Mutex
	seq  uint64
	now  func() time.Time
	logs map[string]*refusalLog
	wake chan struct{} // closed when something is added
}

type refusalLog struct {
	kept    []Refusal
	lost    uint64 // the last Seq that was dropped
	repeats map[refusalKey]*repeat
	tokens  float64
	filled  time.Time
	quiet   int // not recorded one by one
}

type refusalKey struct {
	kind                  Kind
	proto, target, reason string
}

type repeat struct {
	first Refusal
	since time.Time
	count int
	last  time.Time
}

func newJournal(now func() time.Time) *journal {
	// Of a later process it is larger, so that a reader's place stays good.
	return &journal{now: now, seq: uint64(now().UnixMilli()) << 16, logs: map[string]*refusalLog{}, wake: make(chan struct{})}
}

// add records a refusal.
func (j *journal) add(r Refusal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	l := j.logs[r.Sandbox]
	if l == nil {
		l = &refusalLog{repeats: map[refusalKey]*repeat{}, tokens: refusalBurst, filled: now}
		j.logs[r.Sandbox] = l
	}
	key := refusalKey{r.Kind, r.Proto, r.Target, r.Reason}
	if same := l.repeats[key]; same != nil {
		same.count++
		same.last = now
		return
	}
	l.tokens = min(refusalBurst, l.tokens+now.Sub(l.filled).Seconds()*refusalsASec)
	l.filled = now
	if l.tokens < 1 {
		l.quiet++
		return
	}
	l.tokens--
	r.Time, r.Count = now, 1
	l.repeats[key] = &repeat{first: r, since: now}
	j.keep(l, r)
}

func (j *journal) keep(l *refusalLog, r Refusal) {
	j.seq++
	r.Seq = j.seq
	if len(l.kept) == keptRefusals {
		l.lost = l.kept[0].Seq
		l.kept = slices.Delete(l.kept, 0, 1)
	}
	l.kept = append(l.kept, r)
	close(j.wake)
	j.wake = make(chan struct{})
}

// settle tells of what has been repeated; it is called every now and then.
func (j *journal) settle() {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	for id, l := range j.logs {
		for key, r := range l.repeats {
			if now.Sub(r.since) < refusalWindow {
				continue
			}
			if r.count == 0 {
				delete(l.repeats, key)
				continue
			}
			again := r.first
			again.Time, again.Count = r.last, r.count
			j.keep(l, again)
			r.since, r.count = now, 0
		}
		if l.quiet > 0 {
			j.keep(l, Refusal{Time: now, Sandbox: id, Kind: Refused, Proto: "any", Target: "various", Count: l.quiet,
				Reason: fmt.Sprintf("%d more refusals, too many to record each", l.quiet)})
			l.quiet = 0
		}
	}
}

// forget drops what is known of a sandbox that is gone.
func (j *journal) forget(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.logs, id)
}

// since returns what came after a place, the place to go on from, whether
// something in between was lost, and what to wait on for more.
func (j *journal) since(after uint64) (found []Refusal, next uint64, lost bool, wake <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	next = max(after, j.seq)
	for _, l := range j.logs {
		i, _ := slices.BinarySearchFunc(l.kept, after+1, func(r Refusal, seq uint64) int { return cmp.Compare(r.Seq, seq) })
		found = append(found, l.kept[i:]...)
		lost = lost || l.lost > after
	}
	slices.SortFunc(found, func(a, b Refusal) int { return cmp.Compare(a.Seq, b.Seq) })
	if len(found) > maxRefusalPage {
		found = found[:maxRefusalPage]
		next = found[maxRefusalPage-1].Seq
	}
	return found, next, lost, j.wake
}

// savedJournal is a journal on its way to another process.
type savedJournal struct {
	Seq  uint64    `json:"seq"`
	Kept []Refusal `json:"kept,omitempty"`
}

func (j *journal) save() savedJournal {
	found, _, _, _ := j.since(0)
	j.mu.Lock()
	defer j.mu.Unlock()
	return savedJournal{Seq: j.seq, Kept: found}
}

func (j *journal) load(s savedJournal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq = max(j.seq, s.Seq)
	for _, r := range s.Kept {
		l := j.logs[r.Sandbox]
		if l == nil {
			l = &refusalLog{repeats: map[refusalKey]*repeat{}, tokens: refusalBurst, filled: j.now()}
			j.logs[r.Sandbox] = l
		}
		l.kept = append(l.kept, r)
	}
}
