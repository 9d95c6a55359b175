package sandbox

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// sessionTable has the live sessions of this server's sandboxes, those that are
// being started among them. The zero value is ready.
type sessionTable struct {
	mu     sync.Mutex
	ids    map[string]*liveSession
	boxes  map[string]map[string]*liveSession // by sandbox and name
	unsent map[string]func(*Session)          // ends the store has not taken yet, by id
}

// find returns a live session of a sandbox by its name or id, nil when there is
// none.
func (t *sessionTable) find(sandboxID, name string) *liveSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ls := t.ids[name]; ls != nil && ls.sandboxID == sandboxID {
		return ls
	}
	return t.boxes[sandboxID][name]
}

func (t *sessionTable) byID(id string) *liveSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[id]
}

// of returns the live sessions of a sandbox, all when sandboxID is empty.
func (t *sessionTable) of(sandboxID string) []*liveSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sandboxID == "" {
		return slices.Collect(maps.Values(t.ids))
	}
	var list []*liveSession
	for name, ls := range t.boxes[sandboxID] {
		if name == ls.name() { // one that is being renamed is there twice
			list = append(list, ls)
		}
	}
	return list
}

// add adds a session under its name, or under a free short one when it has
// none. When the name is taken it returns who has it.
func (t *sessionTable) add(ls *liveSession, limit int) (taken *liveSession, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	box := t.boxes[ls.sandboxID]
	if other := box[ls.name()]; other != nil {
		return other, nil
	}
	if limit > 0 && len(box) >= limit {
		return nil, fault.New(fault.Exhausted, "sandbox %s has %d sessions, as many as it may; end one first: session list, session kill", ls.sandboxID, len(box)).About("sandbox")
	}
	if t.ids == nil {
		t.ids, t.boxes = map[string]*liveSession{}, map[string]map[string]*liveSession{}
	}
	if box == nil {
		box = map[string]*liveSession{}
		t.boxes[ls.sandboxID] = box
	}
	for n := 1; ls.name() == ""; n++ {
		if name := "s" + strconv.Itoa(n); box[name] == nil {
			ls.setName(name)
		}
	}
	box[ls.name()] = ls
	t.ids[ls.id] = ls
	return nil, nil
}

// rename gives a session a second name while write writes it down, and after
// that only the new one.
func (t *sessionTable) rename(ls *liveSession, to string, write func() error) error {
	t.mu.Lock()
	box := t.boxes[ls.sandboxID]
	if other := box[to]; other != nil && other != ls {
		t.mu.Unlock()
		e := fault.New(fault.Exists, "there is a session %q in the sandbox already", to).About("session")
		e.Field = "name"
		return e
	}
	box[to] = ls
	t.mu.Unlock()
	err := write()
	t.mu.Lock()
	defer t.mu.Unlock()
	drop := to
	if err == nil {
		drop = ls.name()
		ls.setName(to)
	}
	if drop != ls.name() && t.boxes[ls.sandboxID][drop] == ls {
		delete(t.boxes[ls.sandboxID], drop)
	}
	return err
}

// remove takes a session that has ended out of the table.
func (t *sessionTable) remove(ls *liveSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids[ls.id] != ls {
		return
	}
	delete(t.ids, ls.id)
	box := t.boxes[ls.sandboxID]
	maps.DeleteFunc(box, func(_ string, other *liveSession) bool { return other == ls })
	if len(box) == 0 {
		delete(t.boxes, ls.sandboxID)
	}
}

// keepEnd keeps the end of a session in memory while the store does not take
// it, until it is called with nil.
func (t *sessionTable) keepEnd(id string, end func(*Session)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if end == nil {
		delete(t.unsent, id)
		return
	}
	if t.unsent == nil {
		t.unsent = map[string]func(*Session){}
	}
	t.unsent[id] = end
}

func (t *sessionTable) endOf(id string) func(*Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unsent[id]
}

// isSessionID reports whether s is an id and not a name.
func isSessionID(s string) bool { return strings.HasPrefix(s, prefixSession+"_") }
