package modeltest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Bounds of what exists at a time.
const (
	maxBoxes     = 6
	maxSnapshots = 5
	maxJobs      = 2
	maxPoints    = 2
)

// step is one kind of step.
type step struct {
	name   string
	weight int
	// can reports whether the step makes sense now.
	can func(r *run) bool
	do  func(r *run)
}

func (r *run) steps() []step {
	any := func(r *run) bool { return len(r.model.boxes) > 0 }
	saves := func(r *run) bool { return any(r) && r.caps.Support[driver.FeatureSave].OK }
	return []step{
		{"create", 4, func(r *run) bool { return len(r.model.boxes) < maxBoxes }, (*run).create},
		{"delete", 3, func(r *run) bool { return len(r.model.boxes) > 2 }, (*run).delete},
		{"write", 14, any, (*run).write},
		{"read", 14, any, (*run).readOne},
		{"execute", 14, any, (*run).execute},
		{"start job", 5, any, (*run).startJob},
		{"stop job", 4, any, (*run).stopJob},
		{"use session", 10, any, (*run).useSession},
		{"rename session", 2, any, (*run).renameSession},
		{"pause", 7, any, (*run).pause},
		{"resume", 5, any, (*run).resume},
		{"death", 3, any, (*run).death},
		{"snapshot", 4, func(r *run) bool { return saves(r) && len(r.model.snapshots) < maxSnapshots }, (*run).snapshot},
		{"delete snapshot", 3, func(r *run) bool { return len(r.model.snapshots) > 0 }, (*run).deleteSnapshot},
		{"checkpoint", 4, saves, (*run).checkpoint},
		{"restore", 4, saves, (*run).restore},
		{"delete checkpoint", 2, saves, (*run).deleteCheckpoint},
		{"fork", 3, func(r *run) bool { return saves(r) && len(r.model.boxes) < maxBoxes }, (*run).fork},
		{"freeze", 2, func(r *run) bool { return any(r) && r.h.Freeze != nil }, (*run).freeze},
		{"full disk", 2, func(r *run) bool { return any(r) && r.h.Full != nil }, (*run).full},
		{"strange request", 2, any, (*run).strange},
	}
}

func (r *run) choose() step {
	var can []step
	total := 0
	for _, s := range r.steps() {
		if s.can(r) {
			can = append(can, s)
			total += s.weight
		}
	}
	n := r.rand.IntN(total)
	for _, s := range can {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	panic("weights do not add up")
}

// pick returns one of the sandboxes.
func (r *run) pick() *box {
	ids := slices.Sorted(maps.Keys(r.model.boxes))
	return r.model.boxes[ids[r.rand.IntN(len(ids))]]
}

func (r *run) name() string { return names[r.rand.IntN(len(names))] }

func (r *run) content() string { return fmt.Sprintf("%d-%d", r.step, r.rand.IntN(1000)) }

// answered reports whether an operation that returned err was done. When the
// server died in it, perhaps is run instead: nobody knows. Any other error is
// a failure of the test.
func (r *run) answered(what string, err error, perhaps func()) bool {
	r.t.Helper()
	switch {
	case err == nil:
		return true
	case r.gate.died():
		r.note("   died in it (%v)", err)
		perhaps()
	case r.noRoom(err):
		if !slices.Contains(makes, what) { // what was to be made is not there
			perhaps()
		}
	default:
		r.t.Errorf("step %d: %s: %s: %v", r.step, what, fault.CodeOf(err), withCause(err))
	}
	return false
}

// makes are the operations that make something, or nothing.
var makes = []string{"create", "snapshot", "checkpoint", "fork"}

func (r *run) create() {
	req := sandbox.CreateRequest{}
	files := noFiles()
	if len(r.model.snapshots) > 0 && r.rand.IntN(2) == 0 {
		ids := slices.Sorted(maps.Keys(r.model.snapshots))
		s := r.model.snapshots[ids[r.rand.IntN(len(ids))]]
		req.Snapshot, files = s.id, s.files.clone()
	}
	made, err := r.actor().Create(r.ctx(), req)
	if r.answered("create", err, func() { r.model.unknown = true }) {
		r.add(made.Sandbox.ID, files)
	}
}

func (r *run) add(id string, f files) {
	r.note("   %s", id)
	r.model.boxes[id] = &box{id: id, statuses: only(up), files: f, points: map[string]files{}, jobs: map[string]bool{},
		sessions: sessions{live: map[string]*session{}, exits: map[string]int{}}}
}

func (r *run) delete() {
	b := r.pick()
	r.note("   %s", b.id)
	if r.answered("delete", r.actor().Delete(r.ctx(), b.id), func() { b.statuses[gone] = true; b.loseJobs(); b.statuses[down] = true }) {
		delete(r.model.boxes, b.id)
		if is := r.look(b.id); is != gone && !r.gate.died() {
			r.t.Errorf("%s was deleted and is %s", b.id, is)
		}
		if err := r.actor().Delete(r.ctx(), b.id); err != nil && !r.gate.died() {
			r.t.Errorf("delete again: %v", err)
		}
	} else if r.refused {
		r.halfDeleted = b
	}
}

// perhapsWoken notes that the server died while it may have been waking the
// sandbox: a memory image is used up before a process runs again, so the
// processes may be lost.
func (b *box) perhapsWoken() {
	if !b.statuses.is(up) {
		b.loseJobs()
		b.statuses[down] = true
	}
	b.statuses[up] = true
}

// loseJobs notes that jobs and sessions may have ended.
func (b *box) loseJobs() {
	clear(b.jobs)
	b.sessions.unsure()
}

func (r *run) write() {
	b, name, content := r.pick(), r.name(), r.content()
	r.note("   %s %s=%s", b.id, name, content)
	err := r.actor().WriteFile(r.ctx(), b.id, sandbox.File{Path: name, Content: []byte(content)})
	if r.answered("write", err, func() { b.files[name][content] = true; b.perhapsWoken() }) {
		b.files[name] = only(content)
		b.statuses = only(up)
	}
}

func (r *run) readOne() {
	b := r.pick()
	r.checkFile(b, r.name())
}

func (r *run) execute() {
	b, name, content, exit := r.pick(), r.name(), r.content(), r.rand.IntN(3)
	r.note("   %s %s=%s", b.id, name, content)
	perhaps := func() {
		b.files[name][content], b.files[name][""] = true, true
		b.perhapsWoken()
		b.atWork = true
	}
	script := fmt.Sprintf("mkdir -p sub; printf %%s %s >%s; echo %s; exit %d", content, name, content, exit)
	x, err := r.actor().Execute(r.ctx(), b.id, sandbox.ExecRequest{Command: []string{"/bin/sh", "-c", script}})
	if b.atWork && fault.Is(err, fault.Busy) {
		return
	}
	if !r.answered("execute", err, perhaps) {
		return
	}
	b.statuses = only(up)
	perhaps() // until it has ended
	x, err = r.actor().Execution(r.ctx(), x.ID, r.h.Patience)
	if !r.answered("wait for an execution", err, func() {}) {
		return
	}
	if x.ExitCode == nil || *x.ExitCode != exit {
		if !r.gate.died() {
			r.t.Errorf("execution %+v, want exit code %d", x, exit)
		}
		return
	}
	if r.diskFull {
		return // there was no room for its output, and perhaps none for its end
	}
	b.statuses, b.atWork = only(up), false
	b.files[name] = only(content)
	c := command{x.ID, content + "\n", exit}
	if !r.gate.died() {
		r.checkCommand(c)
		b.commands = append(b.commands, c)
	}
	if len(b.commands) > 5 {
		b.commands = b.commands[1:]
	}
}

func (r *run) startJob() {
	b := r.pick()
	if len(b.jobs) >= maxJobs {
		return
	}
	j, err := r.jobOps().CreateJob(r.ctx(), b.id, sandbox.JobRequest{Command: []string{"/bin/sh", "-c", "echo started; exec sleep 100000"}})
	if r.answered("start a job", err, b.perhapsWoken) {
		b.jobs[j.ID] = true
		b.statuses = only(up)
	}
}

func (r *run) stopJob() {
	b := r.pick()
	for id := range b.jobs {
		r.note("   %s %s", b.id, id)
		j, err := r.jobOps().StopJob(r.ctx(), id, r.rand.IntN(2) == 0)
		if r.answered("stop a job", err, func() {}) && j.Status != sandbox.JobCancelled && !r.gate.died() {
			r.t.Errorf("a stopped job of %s (%s) is %s (%s)", b.id, b.statuses, j.Status, j.Error)
		}
		delete(b.jobs, id)
		b.statuses[up] = true // one that slept with its sandbox was woken to be stopped
		if r.gate.died() {
			b.perhapsWoken()
		}
		return
	}
}

func (r *run) pause() {
	b := r.pick()
	r.note("   %s", b.id)
	if b.statuses[down] {
		return // a suspended one: the record says so already
	}
	s, err := r.lifeOps().Pause(r.ctx(), b.id)
	perhaps := func() { b.statuses[paused], b.statuses[down] = true, true; b.loseJobs() }
	if r.answered("pause", err, perhaps) {
		b.statuses = only(paused)
		if !s.Memory {
			b.loseJobs()
		}
	}
}

func (r *run) resume() {
	b := r.pick()
	r.note("   %s", b.id)
	_, err := r.lifeOps().Resume(r.ctx(), b.id)
	perhaps := func() { b.statuses[up], b.statuses[down] = true, true; b.loseJobs() }
	if !r.answered("resume", err, perhaps) {
		return
	}
	b.statuses = only(up)
	for id := range b.jobs {
		j, err := r.jobOps().Job(r.ctx(), id, 0)
		if (err != nil || j.Status != sandbox.JobRunning) && !r.gate.died() {
			r.t.Errorf("job %s is %s (%s), %v after a resume of %s; it must run on", id, j.Status, j.Error, err, b.id)
		}
	}
}

// death kills a sandbox and waits until the engine has seen it.
func (r *run) death() {
	b := r.pick()
	if !b.statuses.is(up) {
		return
	}
	r.note("   %s", b.id)
	r.h.Kill(b.id)
	b.loseJobs()
	b.statuses = set{up: true, down: true}
	ctx, cancel := context.WithTimeout(r.ctx(), r.h.Patience)
	defer cancel()
	s, err := r.actor().WaitStatus(ctx, b.id, sandbox.Suspended, sandbox.Failed)
	if !r.answered("wait for a death", err, func() {}) {
		return
	}
	if s.Status.Up() && !r.gate.died() {
		r.t.Errorf("%s was killed and is %s", b.id, s.Status)
	}
	b.statuses = only(down)
	if s.Status == sandbox.Failed && !r.gate.died() { // its files are gone with it
		r.answered("delete what has died", r.actor().Delete(r.ctx(), b.id), func() {})
		delete(r.model.boxes, b.id)
	}
}

// freeze stops a sandbox: it does not answer, and nobody else notices.
func (r *run) freeze() {
	b := r.pick()
	if !b.statuses.is(up) || r.gate.died() {
		return
	}
	r.note("   %s", b.id)
	thaw := r.h.Freeze(r.t, b.id)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	content := r.content()
	err := r.actor().WriteFile(ctx, b.id, sandbox.File{Path: "a", Content: []byte(content)})
	cancel()
	b.files["a"][content] = true
	if err == nil {
		b.files["a"] = only(content)
	}
	for _, other := range r.model.boxes {
		if other != b && other.statuses.is(up) {
			r.checkFile(other, "a")
			break
		}
	}
	thaw()
	if !r.gate.died() {
		r.checkFile(b, "a")
	}
}

// noRoom reports whether an operation was refused because the disk is full.
func (r *run) noRoom(err error) bool {
	if !r.diskFull || !fault.Is(err, fault.Exhausted) {
		return false
	}
	r.note("   the disk is full (%v)", err)
	r.count["refused on a full disk"]++
	r.refused = true
	return true
}

// full makes the disk of the server full for a few operations, up to the first
// that is refused for that. When there is room again everything is in order.
func (r *run) full() {
	free := r.h.Full(r.t)
	r.diskFull, r.refused = true, false
	for i := 0; i < 4 && !r.refused && !r.gate.died(); i++ {
		s := r.choose()
		if slices.Contains([]string{"full disk", "freeze", "death", "strange request"}, s.name) {
			continue
		}
		r.note("   %s", s.name)
		s.do(r)
	}
	r.diskFull = false
	free()
	if r.gate.died() {
		return
	}
	if b := r.halfDeleted; b != nil { // once more, as one would
		r.halfDeleted = nil
		err := r.actor().Delete(r.ctx(), b.id)
		if !r.answered("delete again", err, func() {}) {
			return
		}
		delete(r.model.boxes, b.id)
	}
	r.unsure = true // not here: the server may be about to die
}

// strange asks for what cannot be.
func (r *run) strange() {
	b := r.pick()
	for what, err := range map[string]error{
		"a sandbox that is not there":    r.actor().Delete(r.ctx(), "sbx_aaaaaaaaaaaa"),
		"a checkpoint that is not there": second(r.snapshotOps().RestoreCheckpoint(r.ctx(), b.id, "nope")),
		"a snapshot that is not there":   second(r.actor().Create(r.ctx(), sandbox.CreateRequest{Snapshot: "snp_aaaaaaaaaaaa"})),
		"a file outside":                 r.actor().WriteFile(r.ctx(), b.id, sandbox.File{Path: "../../etc/x"}),
	} {
		if err == nil || fault.CodeOf(err) == fault.Internal {
			if !r.gate.died() {
				r.t.Errorf("%s: %v", what, err)
			}
		}
	}
	if !r.gate.died() {
		b.statuses[r.look(b.id)] = true // a look may have woken it
	}
}

func second[T any](_ T, err error) error { return err }
