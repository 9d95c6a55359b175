package modeltest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// maxSessions bounds the sessions of one sandbox.
const maxSessions = 3

// sessions is what the model knows of the sessions of a sandbox.
type sessions struct {
	live  map[string]*session // by name
	maybe string              // a name whose session may be there or not
	exits map[string]int      // by id: exits that a client has seen
}

// session is one that was there when somebody last looked. It is sure to be as
// long as nothing has happened that may have ended it.
type session struct {
	id   string
	sure bool
}

func (s *sessions) unsure() {
	for _, one := range s.live {
		one.sure = false
	}
}

// script answers every line, and ends as it is told.
const script = `echo ready; while read -r a b; do case $a in exit) exit $b;; *) echo "got $a $b";; esac; done`

// client is one end of a session.
type client struct {
	proc    sandbox.SessionProcess
	mu      sync.Mutex
	shown   strings.Builder
	changed chan struct{}
}

func (c *client) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
	return c.shown.Write(b)
}

// shows waits for a text; false when ctx or the client's part ends first.
func (c *client) shows(ctx context.Context, text string, ended <-chan struct{}) bool {
	for {
		c.mu.Lock()
		ok, changed := strings.Contains(c.shown.String(), text), c.changed
		c.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// open opens a session and returns its client with what becomes of it.
func (r *run) openSession(b *box, q sandbox.SessionRequest) (c *client, ended <-chan struct{}, exit *guest.Exit, err error) {
	q.Command.Args = []string{"/bin/sh", "-c", script}
	q.Command.TTY = &guest.TTY{Size: guest.Size{Rows: uint16(5 + r.rand.IntN(30)), Cols: uint16(20 + r.rand.IntN(100))}}
	c = &client{changed: make(chan struct{})}
	if c.proc, err = r.actor().OpenSession(r.ctx(), b.id, q, guest.Output{Stdout: c}); err != nil {
		return nil, nil, nil, err
	}
	done := make(chan struct{})
	exit = &guest.Exit{Code: -1}
	go func() {
		defer close(done)
		if x, err := c.proc.Wait(context.Background()); err == nil {
			*exit = x
		}
	}()
	return c, done, exit, nil
}

// useSession does something with a session: starts one, or comes back to it,
// alone or with somebody who watches, and leaves it or ends it.
func (r *run) useSession() {
	b := r.pick()
	name := fmt.Sprint("n", r.rand.IntN(maxSessions))
	known := b.sessions.live[name]
	r.note("   %s %s", b.id, name)
	perhaps := func() {
		b.perhapsWoken()
		b.sessions.maybe = name
	}
	c, ended, exit, err := r.openSession(b, sandbox.SessionRequest{Name: name})
	if !r.answered("open a session", err, perhaps) {
		return
	}
	defer func() {
		c.proc.Close()
		<-ended
	}()
	b.statuses = only(up)
	rec, created := c.proc.Session()
	switch {
	case known != nil && known.sure && (created || rec.ID != known.id) && !r.gate.died():
		r.t.Errorf("session %s of %s is %s (%v), not %s any more", name, b.id, rec.ID, created, known.id)
	case known == nil && !created && b.sessions.maybe != name && !r.gate.died():
		r.t.Errorf("session %s of %s was there: %s", name, b.id, rec.ID)
	}
	b.sessions.live[name] = &session{id: rec.ID, sure: true}
	watcher := c
	watching := ended
	if r.rand.IntN(3) == 0 {
		w, done, _, err := r.openSession(b, sandbox.SessionRequest{Name: name, Mode: sandbox.ViewWatch})
		if !r.answered("watch a session", err, func() {}) {
			return
		}
		defer w.proc.Close()
		watcher, watching = w, done
	}
	line := "step " + r.content()
	if _, err := io.WriteString(c.proc, line+"\n"); err == nil && !watcher.shows(r.ctx(), "got "+line, watching) && !r.gate.died() {
		r.t.Errorf("session %s (%s) of %s does not answer: %q", name, rec.ID, b.id, watcher.shown.String())
	}
	switch r.rand.IntN(6) {
	case 0:
		code := r.rand.IntN(5)
		delete(b.sessions.live, name)
		b.sessions.maybe = name
		if _, err := fmt.Fprintf(c.proc, "exit %d\n", code); err != nil {
			return
		}
		select {
		case <-ended:
		case <-r.ctx().Done():
		}
		if exit.Code == code {
			b.sessions.exits[rec.ID], b.sessions.maybe = code, ""
		} else if !r.gate.died() {
			r.t.Errorf("session %s of %s ended with %+v, want %d", name, b.id, *exit, code)
		}
	case 1:
		err := r.actor().KillSession(r.ctx(), b.id, name)
		delete(b.sessions.live, name)
		r.answered("kill a session", err, func() { b.sessions.maybe = name })
	}
}

func (r *run) renameSession() {
	b := r.pick()
	all := slices.Sorted(maps.Keys(b.sessions.live))
	if len(all) == 0 {
		return
	}
	name, to := all[r.rand.IntN(len(all))], fmt.Sprint("n", r.rand.IntN(maxSessions))
	s, other := b.sessions.live[name], b.sessions.live[to]
	if !s.sure || b.sessions.maybe != "" {
		return
	}
	r.note("   %s %s to %s", b.id, name, to)
	_, err := r.actor().RenameSession(r.ctx(), b.id, s.id, to)
	if other != nil && other != s && fault.Is(err, fault.Exists) {
		return
	}
	delete(b.sessions.live, name)
	if r.answered("rename a session", err, func() { b.sessions.live[name] = s; s.sure = false; b.sessions.maybe = to }) {
		b.sessions.live[to] = s
	}
}

// checkSessions compares the sessions of a sandbox with the model, with their
// records and with the guest.
func (r *run) checkSessions(b *box) {
	live, err := r.actor().Sessions(r.ctx(), b.id, false)
	if err != nil {
		r.t.Errorf("sessions of %s: %v", b.id, err)
		return
	}
	found := map[string]string{}
	for _, s := range live {
		found[s.Name] = s.ID
	}
	for name, s := range b.sessions.live {
		switch id := found[name]; {
		case id == s.id:
			delete(found, name)
		case s.sure:
			r.t.Errorf("session %s (%s) of %s is not there; %q is", name, s.id, b.id, id)
		}
		if !s.sure {
			delete(b.sessions.live, name)
			if b.sessions.maybe == "" || found[name] == "" {
				delete(found, name)
			}
		}
	}
	for name, id := range found {
		if name != b.sessions.maybe {
			r.t.Errorf("%s has a session %s (%s) that nobody asked for", b.id, name, id)
		}
	}
	b.sessions.maybe = ""
	for _, s := range live { // those that are not certain are known from now on
		b.sessions.live[s.Name] = &session{id: s.ID, sure: b.sessions.live[s.Name] != nil && b.sessions.live[s.Name].sure}
	}
	for id, code := range b.sessions.exits {
		s, err := r.actor().Session(r.ctx(), "", id)
		if err != nil || s.Status != sandbox.SessionEnded || s.Exit == nil || s.Exit.Code != code {
			r.t.Errorf("session %s of %s, seen to end with %d, is %+v, %v", id, b.id, code, s, err)
		}
	}
	if b.statuses.is(up) && !r.gate.died() {
		r.checkProcesses(b.id)
	}
}

// checkProcesses waits until the records of a sandbox's sessions and the
// guest's processes are the same.
func (r *run) checkProcesses(id string) {
	deadline := time.Now().Add(r.h.Patience)
	for {
		recorded, running, err := r.recordedAndRunning(id)
		if err == nil && recorded == running {
			return
		}
		if time.Now().After(deadline) {
			r.t.Errorf("sessions of %s: on record %s, in the guest %s, %v", id, recorded, running, err)
			return
		}
	}
}

func (r *run) recordedAndRunning(id string) (recorded, running string, err error) {
	stream, err := r.gate.Dial(r.ctx(), id)
	if err != nil {
		return "", "", err
	}
	conn, err := guest.Connect(r.ctx(), stream)
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	live, err := r.store.Sessions(r.ctx(), sandbox.SessionFilter{SandboxID: id, LiveOnly: true})
	if err != nil {
		return "", "", err
	}
	list, err := conn.List(r.ctx())
	if err != nil {
		return "", "", err
	}
	var on, in []string
	for _, s := range live {
		on = append(on, s.ID)
	}
	for _, p := range list {
		if p.Label == "session" && !p.Exited {
			in = append(in, p.ID)
		}
	}
	slices.Sort(on)
	slices.Sort(in)
	return fmt.Sprint(on), fmt.Sprint(in), nil
}
