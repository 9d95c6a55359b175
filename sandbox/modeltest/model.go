package modeltest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// model is what the engine has promised.
type model struct {
	boxes     map[string]*box // by id: those that exist, for sure or perhaps
	snapshots map[string]*snapshot
	unknown   bool // an answer was lost: there may be one sandbox or snapshot more
}

// box is one sandbox.
type box struct {
	id         string
	statuses   set // what it may be: up, paused, down, gone
	files      files
	points     map[string]files // checkpoints by name
	jobs       map[string]bool  // by id: true while it must be running
	commands   []command
	sessions   sessions
	atWork     bool   // a command whose end nobody was told may run on
	maybePoint string // a checkpoint that may be there or not
}

// What a box may be. Every status of the engine is one of them.
const (
	up     = "up"
	paused = "paused"
	down   = "down" // suspended, or failed with its files
	gone   = "gone"
)

// snapshot is one snapshot.
type snapshot struct {
	id    string
	files files
	may   set // there, gone
}

const there = "there"

// command is an answered execution.
type command struct {
	id, output string
	exit       int
}

// set is what something may be; one element when it is known.
type set map[string]bool

func only(v string) set { return set{v: true} }

func (s set) is(v string) bool { return len(s) == 1 && s[v] }

func (s set) String() string { return strings.Join(slices.Sorted(maps.Keys(s)), " or ") }

// files is the workspace: by name, what each file may hold. The empty string
// stands for a file that is not there.
type files map[string]set

// names are the files of the model. One lies in a folder.
var names = []string{"a", "b", "sub/c"}

func noFiles() files {
	f := files{}
	for _, n := range names {
		f[n] = only("")
	}
	return f
}

func (f files) clone() files {
	c := files{}
	for n, s := range f {
		c[n] = maps.Clone(s)
	}
	return c
}

// or allows what g allows too.
func (f files) or(g files) files {
	c := f.clone()
	for n, s := range g {
		maps.Copy(c[n], s)
	}
	return c
}

// look returns what a sandbox is now, in the model's words.
func (r *run) look(id string) string {
	s, err := r.actor().Get(r.ctx(), id)
	if fault.Is(err, fault.NotFound) {
		return gone
	}
	if err != nil {
		if !r.gate.died() {
			r.t.Errorf("get %s: %v", id, err)
		}
		return gone
	}
	switch s.Status {
	case sandbox.Idle, sandbox.Running:
		return up
	case sandbox.Paused:
		return paused
	case sandbox.Suspended, sandbox.Failed:
		return down
	case sandbox.Deleted, sandbox.Terminated:
		return gone
	default: // creating, stopping: nobody is at work between steps
		r.t.Errorf("sandbox %s is %s with nobody at work on it", id, s.Status)
		return gone
	}
}

// learn looks at everything after a crash: what was sure must still be so,
// what was not is known from now on.
func (r *run) learn() {
	r.t.Helper()
	for id, b := range r.model.boxes {
		is := r.look(id)
		if !b.statuses[is] {
			r.t.Errorf("sandbox %s is %s after a crash, it can only be %s", id, is, b.statuses)
		}
		b.statuses = only(is)
		if is == gone {
			delete(r.model.boxes, id)
		}
	}
	for id, s := range r.model.snapshots {
		_, err := r.snapshotOps().Snapshot(r.ctx(), id)
		switch {
		case fault.Is(err, fault.NotFound) && s.may[gone]:
			delete(r.model.snapshots, id)
		case err != nil:
			r.t.Errorf("snapshot %s after a crash: %v", id, err)
		default:
			s.may = only(there)
		}
	}
	r.adoptUnknown()
	for id, b := range r.model.boxes {
		r.learnPoints(b)
		r.learnCommands(b)
		r.checkSessions(b)
		for j, running := range b.jobs {
			job, err := r.jobOps().Job(r.ctx(), j, 0)
			if err != nil || (running && b.statuses.is(up) && job.Status != sandbox.JobRunning) {
				r.t.Errorf("job %s of %s after a crash: %s (%s), %v; it must run on", j, id, job.Status, job.Error, err)
			}
		}
	}
}

// learnCommands waits for the commands that run on, so that nothing writes to
// the files behind the model's back. Those that sleep with their sandbox stay.
func (r *run) learnCommands(b *box) {
	if !b.atWork || !b.statuses.is(up) {
		return
	}
	list, err := r.actor().Executions(r.ctx(), b.id, 0)
	if err != nil {
		r.t.Errorf("executions of %s: %v", b.id, err)
	}
	for _, x := range list {
		if x, err = r.actor().Execution(r.ctx(), x.ID, r.h.Patience); err != nil || !x.Status.Done() {
			r.t.Errorf("execution %s of %s after a crash: %s, %v", x.ID, b.id, x.Status, err)
		}
	}
	b.atWork = false
}

// adoptUnknown removes what was made without an answer, at most one thing.
func (r *run) adoptUnknown() {
	list, _, err := r.actor().List(r.ctx(), sandbox.ListRequest{Limit: 100})
	if err != nil && !r.gate.died() {
		r.t.Errorf("list: %v", err)
	}
	more := 0
	for _, s := range list {
		if r.model.boxes[s.ID] != nil {
			continue
		}
		switch {
		case s.Status == sandbox.Failed: // one that could not be made leaves a record that says why
		case r.refused && !s.Status.Up(): // the same, and there was no room yet to say so
		default:
			r.note("   %s is %s", s.ID, s.Status)
			more++
		}
		if err := r.actor().Delete(r.ctx(), s.ID); err != nil && !r.gate.died() {
			r.t.Errorf("delete %s, which was made without an answer: %v", s.ID, err)
		}
	}
	if r.gate.died() {
		return // whoever looks after the restart will find the rest
	}
	snaps, _, err := r.snapshotOps().Snapshots(r.ctx(), sandbox.SnapshotFilter{})
	if err != nil && !r.gate.died() {
		r.t.Errorf("list snapshots: %v", err)
	}
	for _, s := range snaps {
		if r.model.snapshots[s.ID] != nil {
			continue
		}
		more++
		if err := r.snapshotOps().DeleteSnapshot(r.ctx(), s.ID, false); err != nil && !r.gate.died() {
			r.t.Errorf("delete snapshot %s, which was made without an answer: %v", s.ID, err)
		}
	}
	if r.gate.died() {
		return
	}
	if more > 1 || (more == 1 && !r.model.unknown) {
		r.t.Errorf("%d things exist that nobody asked for", more)
	}
	r.model.unknown = false
}

// check compares everything with the model.
func (r *run) check() {
	r.t.Helper()
	live := map[string]bool{}
	for id, b := range r.model.boxes {
		live[id] = true
		if is := r.look(id); !b.statuses[is] {
			r.t.Errorf("sandbox %s is %s, it should be %s", id, is, b.statuses)
		}
		r.checkEvents(id)
		for _, c := range b.commands {
			r.checkCommand(c)
		}
		r.checkSessions(b)
	}
	r.checkHost(live)
	r.checkLayers()
	if r.h.Leaks != nil {
		for _, line := range r.h.Leaks(live) {
			r.t.Errorf("left on the host: %s", line)
		}
	}
}

// checkHost compares the store's records with what the driver has.
func (r *run) checkHost(live map[string]bool) {
	found, err := r.gate.List(r.ctx())
	if err != nil {
		r.t.Errorf("list of the driver: %v", err)
	}
	onHost := map[string]driver.State{}
	for _, st := range found {
		onHost[st.ID] = st.State
		if !live[st.ID] {
			r.t.Errorf("the driver has %s (%s), which does not exist any more", st.ID, st.State)
		}
	}
	for id, b := range r.model.boxes {
		state, ok := onHost[id]
		switch {
		case !ok:
			r.t.Errorf("the driver does not have %s", id)
		case b.statuses.is(up) && state != driver.Running:
			r.t.Errorf("%s is up and the driver says %s", id, state)
		case b.statuses.is(paused) && state == driver.Running:
			r.t.Errorf("%s is paused and the driver says %s", id, state)
		}
	}
}

func (r *run) checkEvents(id string) {
	events, err := r.actor().Events(r.ctx(), id, 0, 0)
	if err != nil {
		r.t.Errorf("events of %s: %v", id, err)
	}
	for i, ev := range events {
		if ev.Seq != int64(i+1) {
			r.t.Errorf("event %d of %s has number %d", i+1, id, ev.Seq)
			return
		}
	}
}

func (r *run) checkCommand(c command) {
	x, err := r.actor().Execution(r.ctx(), c.id, 0)
	if r.gate.died() {
		return
	}
	if err != nil || x.ExitCode == nil || *x.ExitCode != c.exit {
		r.t.Errorf("execution %s, answered with exit code %d, is now %+v, %v", c.id, c.exit, x, err)
		return
	}
	var out strings.Builder
	if err := r.actor().Output(r.ctx(), c.id, sandbox.Stdout, &out); !r.gate.died() && (err != nil || out.String() != c.output) {
		r.t.Errorf("output of %s is %q, %v; it was %q", c.id, out.String(), err, c.output)
	}
}

// read returns a file of a sandbox, "" when there is none.
func (r *run) read(id, name string) (string, error) {
	rc, err := r.actor().ReadFile(r.ctx(), id, name)
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer rc.Close()
	b, err := io.ReadAll(rc)
	return string(b), err
}

// checkFile reads a file and holds it against the model.
func (r *run) checkFile(b *box, name string) {
	got, err := r.read(b.id, name)
	if r.gate.died() {
		b.perhapsWoken()
		return
	}
	switch {
	case r.noRoom(err): // to wake it
		b.perhapsWoken()
	case err != nil:
		r.t.Errorf("read %s of %s: %v", name, b.id, withCause(err))
	case !b.files[name][got]:
		r.t.Errorf("%s of %s holds %q, it can only hold %q", name, b.id, got, b.files[name])
	default:
		b.files[name] = only(got)
		b.statuses = only(up)
	}
}

func withCause(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Cause != nil {
		return fmt.Errorf("%w: %w", err, f.Cause)
	}
	return err
}
