package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"

	"github.com/sandgate/sandgate/sandbox"
)

// catalogue holds in memory what a listing of sandboxes filters and sorts by, so
// that any of them is one pass over it: an index for each combination would cost
// every change of a sandbox more than all of that. The database is the truth:
// before each use the catalogue takes in what has changed since the last one,
// whoever changed it, and what it selects is then read from the same moment of
// the database.
type catalogue struct {
	mu      sync.Mutex
	changed int64          // number of the newest change it has
	place   map[string]int // id → index in entries; nil before the first use
	entries []entry
	codes   map[string]int32 // owners, projects, modes and statuses by number
	words   []string         // and back
}

// entry is what a listing looks at of one sandbox.
type entry struct {
	id, name                     string
	owner, project, mode, status int32
	executions, created, updated int64
}

// code is the number of a word.
func (c *catalogue) code(word string) int32 {
	n, ok := c.codes[word]
	if !ok {
		n = int32(len(c.words))
		c.codes[word] = n
		c.words = append(c.words, word)
	}
	return n
}

// catalogueColumns are the columns of an entry, and the number of its change.
const catalogueColumns = "id, name, owner, project, mode, status, executions, created_at, updated_at, changed"

// learn takes in what has changed. The caller holds mu.
func (c *catalogue) learn(ctx context.Context, tx *sql.Tx) error {
	since := c.changed
	if c.place == nil {
		since = -1
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+catalogueColumns+" FROM sandboxes INDEXED BY sandboxes_changed WHERE changed>?", since)
	if err != nil {
		return err
	}
	defer rows.Close()
	if c.place == nil {
		c.place, c.codes = map[string]int{}, map[string]int32{}
		c.entries, c.words, c.changed = nil, nil, 0
	}
	for rows.Next() {
		var e entry
		var owner, project, mode, status string
		var changed int64
		if err := rows.Scan(&e.id, &e.name, &owner, &project, &mode, &status, &e.executions, &e.created, &e.updated, &changed); err != nil {
			c.place = nil // from the beginning, next time
			return err
		}
		e.owner, e.project, e.mode, e.status = c.code(owner), c.code(project), c.code(mode), c.code(status)
		i, known := c.place[e.id]
		if !known {
			i = len(c.entries)
			c.entries = append(c.entries, e)
			c.place[e.id] = i
		}
		c.entries[i] = e
		c.changed = max(c.changed, changed)
	}
	if err := rows.Err(); err != nil {
		c.place = nil
		return err
	}
	return nil
}

// page returns the ids of a page of what matches, and how much does. The caller
// holds mu, and has checked the filter.
func (c *catalogue) page(f sandbox.SandboxFilter) (ids []string, total int) {
	want, order := c.matcher(f), c.sorter(f)
	// What may be on the page or before it. When there is twice as much as can
	// be, the half that cannot be is dropped: each entry costs little, and what
	// comes later is mostly refused by one look at the last that may be.
	var found []*entry
	var worst *entry
	end := f.Offset + f.Limit
	for i := range c.entries {
		e := &c.entries[i]
		if !want(e) {
			continue
		}
		total++
		if worst != nil && order(e, worst) > 0 {
			continue
		}
		if found = append(found, e); len(found) >= 2*end {
			part(found, end, order)
			found = found[:end]
			worst = slices.MaxFunc(found, order)
		}
	}
	if f.Offset >= total {
		return nil, total
	}
	slices.SortFunc(found, order)
	found = found[f.Offset:min(end, total)]
	ids = make([]string, len(found))
	for i, e := range found {
		ids[i] = e.id
	}
	return ids, total
}

// matcher tells what a filter selects.
func (c *catalogue) matcher(f sandbox.SandboxFilter) func(*entry) bool {
	statuses := map[string]bool{}
	for _, st := range f.Statuses {
		statuses[string(st)] = true
	}
	if f.LiveOnly {
		for _, st := range []sandbox.Status{
			sandbox.Creating, sandbox.Idle, sandbox.Running, sandbox.Paused, sandbox.Stopping, sandbox.Suspended,
			sandbox.Terminated, sandbox.Failed, sandbox.Deleted,
		} {
			wanted := len(f.Statuses) == 0 || statuses[string(st)]
			statuses[string(st)] = wanted && st.Live()
		}
	}
	anyStatus := len(statuses) == 0
	status := make([]bool, len(c.words))
	for word, wanted := range statuses {
		if n, known := c.codes[word]; known {
			status[n] = wanted
		}
	}
	owner, project, mode := c.lookFor(f.Owner), c.lookFor(f.Project), c.lookFor(string(f.Mode))
	return func(e *entry) bool {
		return (anyStatus || status[e.status]) &&
			(owner == anyWord || e.owner == owner) &&
			(project == anyWord || e.project == project) &&
			(mode == anyWord || e.mode == mode) &&
			(f.Seen == nil || f.Seen.Sees(e.id, e.name, c.words[e.owner], c.words[e.project]))
	}
}

// What a filter may look for besides a word that is known.
const (
	anyWord = -1
	noWord  = -2
)

func (c *catalogue) lookFor(word string) int32 {
	if word == "" {
		return anyWord
	}
	if n, known := c.codes[word]; known {
		return n
	}
	return noWord
}

// sorter tells the order of a filter; ids decide between equals.
func (c *catalogue) sorter(f sandbox.SandboxFilter) func(a, b *entry) int {
	var by func(a, b *entry) int
	switch f.SortBy {
	case "name":
		by = func(a, b *entry) int { return strings.Compare(a.name, b.name) }
	case "status":
		by = func(a, b *entry) int { return strings.Compare(c.words[a.status], c.words[b.status]) }
	case "mode":
		by = func(a, b *entry) int { return strings.Compare(c.words[a.mode], c.words[b.mode]) }
	case "updated":
		by = func(a, b *entry) int { return cmp.Compare(a.updated, b.updated) }
	case "execution_count":
		by = func(a, b *entry) int { return cmp.Compare(a.executions, b.executions) }
	default:
		by = func(a, b *entry) int { return cmp.Compare(a.created, b.created) }
	}
	ascending := func(a, b *entry) int {
		if n := by(a, b); n != 0 {
			return n
		}
		return strings.Compare(a.id, b.id)
	}
	if f.Asc {
		return ascending
	}
	return func(a, b *entry) int { return ascending(b, a) }
}

// part rearranges the list so that its first n come before all others in the
// order: quickselect, in linear time.
func part(list []*entry, n int, order func(a, b *entry) int) {
	for n > 0 && n < len(list) {
		// Of three, so that a list that is sorted already is no bad case.
		a, b, c := list[0], list[len(list)/2], list[len(list)-1]
		if order(a, b) > 0 {
			a, b = b, a
		}
		if order(b, c) > 0 {
			b = c
		}
		pivot := b
		if order(a, b) > 0 {
			pivot = a
		}
		i, j := 0, len(list)-1
		for i <= j {
			for order(list[i], pivot) < 0 {
				i++
			}
			for order(list[j], pivot) > 0 {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i++
				j--
			}
		}
		switch {
		case n <= j:
			list = list[:j+1]
		case n >= i:
			list, n = list[i:], n-i
		default:
			return
		}
	}
}
