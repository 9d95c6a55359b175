package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/asciicast"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

const prefixRecording = "rec"

// recordings makes recordings and keeps them. It is the sessionRecorder of an
// Engine.
type recordings struct {
	e *Engine

	mu   sync.Mutex
	live map[string]*recordingTap // those that are made, by their id
	used int64                    // bytes of all, as far as counted

	trimming sync.Mutex
}

var _ sessionRecorder = (*recordings)(nil)

func newRecordings(e *Engine) (*recordings, error) {
	if err := os.MkdirAll(e.cfg.RecordingsDir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "cannot make the folder %s", e.cfg.RecordingsDir)
	}
	return &recordings{e: e, live: map[string]*recordingTap{}}, nil
}

// path is where a recording is, without what the names of its files end with.
func (r *recordings) path(id string) string { return filepath.Join(r.e.cfg.RecordingsDir, id) }

// storeTime bounds a write of the records that nobody waits for.
const storeTime = 10 * time.Second

// begin decides whether a session is recorded, and begins. Where it must be and
// cannot, the session is refused; where it should be, it goes on without.
func (r *recordings) begin(ctx context.Context, s *Session, q *SessionRequest) (sessionTap, error) {
	tell := func(format string, args ...any) {
		if q.Notice != nil {
			q.Notice(fmt.Sprintf(format, args...))
		}
	}
	policy, asked := r.e.cfg.Record, q.Record || q.RecordInput
	if policy == RecordNever && asked {
		tell("this session is not recorded: this server records none")
	}
	if policy == RecordNever || policy == RecordOptIn && !asked {
		return nil, nil
	}
	input := q.RecordInput && r.e.cfg.RecordInput
	if q.RecordInput && !input {
		tell("what you type is not recorded: this server does not allow it")
	}
	t, err := r.make(ctx, s, q, input)
	if err != nil {
		r.e.cfg.Log.Warn("begin a recording", "sandbox", s.SandboxID, "session", s.ID, "err", err, "cause", fault.From(err).Cause)
		if policy == RecordAlways {
			return nil, fault.Wrap(err, fault.Exhausted, "this server records every session, and cannot record this one: %s", fault.From(err)).About("session")
		}
		tell("this session is not recorded: %s", fault.From(err))
		return nil, nil
	}
	s.Recording = t.id
	tell("%s", recordedNotice(input))
	return t, nil
}

// recordedNotice is what whoever attaches to a recorded session is told.
func recordedNotice(input bool) string {
	if input {
		return "this session is recorded, and so is everything you type"
	}
	return "this session is recorded"
}

// tellSession tells whoever is in a session something.
func (e *Engine) tellSession(id, line string) {
	ls := e.sessions.byID(id)
	if ls == nil {
		return
	}
	ls.mu.Lock()
	viewers := slices.Clone(ls.viewers)
	ls.mu.Unlock()
	for _, v := range viewers {
		v.tell(line)
	}
}

// make makes the file and the record, in that order: a file that no record
// knows is removed at the next start.
func (r *recordings) make(ctx context.Context, s *Session, q *SessionRequest, input bool) (*recordingTap, error) {
	if err := r.roomToBegin(s.Owner); err != nil {
		return nil, err
	}
	sb, err := r.e.cfg.Store.Sandbox(ctx, s.SandboxID)
	if err != nil {
		return nil, err
	}
	rec := Recording{
		ID: r.e.cfg.NewID(prefixRecording), SandboxID: s.SandboxID, SessionID: s.ID, Session: s.Name, Owner: s.Owner,
		Command: s.Command, Input: input, CreatedAt: r.e.cfg.Now(),
	}
	h := asciicast.Header{Timestamp: rec.CreatedAt, Title: sb.title() + "+" + s.Name}
	if tty := q.Command.TTY; tty != nil {
		size := terminalSize(tty.Size)
		h.Width, h.Height, h.Term = int(size.Cols), int(size.Rows), clip(strings.ToValidUTF8(tty.Term, ""), 64)
	}
	file, err := createRecordingFile(r.path(rec.ID), h)
	if err != nil {
		_ = removeRecordingFile(r.path(rec.ID)) // the first error is the one that helps
		return nil, fault.Wrap(err, fault.Exhausted, "its file cannot be made; is the disk full?")
	}
	if err := r.e.cfg.Store.CreateRecording(ctx, rec); err != nil {
		file.close()
		_ = removeRecordingFile(r.path(rec.ID)) // or the next start does
		return nil, err
	}
	r.count(file.size)
	t := r.newTap(rec, file)
	t.screen = guest.Size{Cols: uint16(h.Width), Rows: uint16(h.Height)}
	return t, nil
}

// title is what a person calls a sandbox.
func (s *Sandbox) title() string {
	if s.Name != "" {
		return s.Name
	}
	return s.ID
}

// goOn goes on with the recording of a session that an earlier server has
// begun. One that cannot be gone on with stays as it is.
func (r *recordings) goOn(ctx context.Context, s *Session) (sessionTap, int64, error) {
	rec, err := r.e.cfg.Store.Recording(ctx, s.Recording)
	if err != nil || !rec.EndedAt.IsZero() {
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
		return nil, 0, err
	}
	file, err := continueRecordingFile(r.path(rec.ID))
	if err != nil {
		r.e.cfg.Log.Warn("a recording does not go on; its session does", "recording", rec.ID, "session", s.ID, "err", err)
		r.cut(ctx, rec)
		return nil, 0, nil
	}
	return r.newTap(rec, file), file.offset, nil
}

// tap is the one that makes a recording; nil when nobody does.
func (r *recordings) tap(id string) *recordingTap {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[id]
}

func (r *recordings) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, id)
}

// now is a recording as it is at this moment.
func (r *recordings) now(rec Recording) Recording {
	if t := r.tap(rec.ID); t != nil {
		rec.Bytes, rec.Duration, _, _ = t.state()
	}
	return rec
}

// close puts the end of a recording on record.
func (r *recordings) close(id string, size int64, duration time.Duration, whole bool) {
	_ = removePlace(r.path(id)) // it has no use any more
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	_, err := r.e.cfg.Store.UpdateRecording(ctx, id, func(rec *Recording) error {
		rec.Bytes, rec.Duration, rec.Complete, rec.EndedAt = size, duration, whole, r.e.cfg.Now()
		return nil
	})
	if err != nil {
		r.e.cfg.Log.Error("note the end of a recording", "recording", id, "err", err) // Sweep does
	}
}

// drop removes a recording of nothing.
func (r *recordings) drop(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	if err := r.remove(ctx, id); err != nil && !fault.Is(err, fault.NotFound) {
		r.e.cfg.Log.Warn("remove an empty recording", "recording", id, "err", err)
	}
}
