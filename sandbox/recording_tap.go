package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/asciicast"
	"github.com/sandgate/sandgate/sandbox/guest"
)

const (
	// gatherTime is how long what happens in a session is gathered before it is
	// written: a recording is never further behind.
	gatherTime = 200 * time.Millisecond
	// tapQueue bounds what waits to be written, and tapBatch how much of that is
	// written at once.
	tapQueue = 1 << 20
	tapBatch = 64 << 10
	// tapPatience is how long a session is held back by a disk that is full or
	// slow. After that the recording misses output, and says so.
	tapPatience = time.Second
	// retryTime is how long a write that has failed is not tried again.
	retryTime = time.Second
)

var errTapClosed = errors.New("the recording is closed")

// piece is one thing that happened in a session.
type piece struct {
	at      time.Duration
	code    asciicast.Code
	data    []byte
	size    guest.Size
	missing int64 // bytes of output that are not there
	why     string
}

// pieceCost is what a piece takes in the queue besides its data.
const pieceCost = 128

// recordingTap makes one recording. The session puts what happens into a queue
// and a goroutine, run, writes it, so that a disk that hangs holds nobody up for
// longer than tapPatience.
type recordingTap struct {
	all   *recordings
	id    string
	of    string // id of the session
	owner string // who started that
	begun time.Time
	input bool

	mu      sync.Mutex
	queue   []piece
	queued  int
	missing int64         // bytes left out since the queue was full
	room    chan struct{} // closed when the queue is taken
	ended   bool
	exit    bool
	any     bool // there was output
	screen  guest.Size
	bytes   int64
	last    time.Duration
	changed chan struct{} // closed when bytes grows, and at the end
	closed  bool          // no more will be written
	left    bool          // by this server: the session goes on

	wake chan struct{}
	full chan struct{}
	done chan struct{}

	file    *recordingFile // of run alone
	failing bool
}

func (r *recordings) newTap(rec Recording, file *recordingFile) *recordingTap {
	t := &recordingTap{
		all: r, id: rec.ID, of: rec.SessionID, owner: rec.Owner, begun: rec.CreatedAt, input: rec.Input, file: file, bytes: file.size, last: file.w.Last(),
		room: make(chan struct{}), changed: make(chan struct{}),
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), done: make(chan struct{}),
	}
	r.mu.Lock()
	r.live[rec.ID] = t
	r.mu.Unlock()
	r.e.background(t.run)
	return t
}

// Write takes output.
func (t *recordingTap) Write(b []byte) (int, error) {
	p := piece{at: t.now(), code: asciicast.Output, data: append([]byte(nil), b...)}
	var patience <-chan time.Time
	for {
		room, err := t.put(p)
		if room == nil {
			return len(b), err
		}
		if patience == nil {
			timer := time.NewTimer(tapPatience)
			defer timer.Stop()
			patience = timer.C
		}
		select {
		case <-room:
		case <-t.done:
			return 0, errTapClosed
		case <-patience:
			t.leaveOut(len(b))
			return len(b), nil
		}
	}
}

// Skipped notes that output is missing.
func (t *recordingTap) Skipped(n int64) {
	_, _ = t.put(piece{at: t.now(), missing: n, why: "the sandbox no longer had it"})
}

// Resized notes the size of the terminal, if it is another one.
func (t *recordingTap) Resized(size guest.Size) {
	t.mu.Lock()
	known := t.screen == size
	t.screen = size
	t.mu.Unlock()
	if known {
		return
	}
	_, _ = t.put(piece{at: t.now(), code: asciicast.Resize, size: size})
}

// WantsInput reports whether what is typed is recorded.
func (t *recordingTap) WantsInput() bool { return t.input }

// Input notes what is typed.
func (t *recordingTap) Input(b []byte) {
	if t.input {
		_, _ = t.put(piece{at: t.now(), code: asciicast.Input, data: append([]byte(nil), b...)})
	}
}

// Ended ends the recording.
func (t *recordingTap) Ended(exit *guest.Exit) {
	t.mu.Lock()
	t.ended, t.exit = true, exit != nil
	t.mu.Unlock()
	t.poke(t.wake)
	t.poke(t.full)
}

func (t *recordingTap) now() time.Duration { return t.all.e.cfg.Now().Sub(t.begun) }

func (t *recordingTap) poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put adds to the queue. When that is full it returns what to wait for; what is
// not output is left out then, and so is all from the first byte of output that
// was left out until the queue is taken.
func (t *recordingTap) put(p piece) (room <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cost := len(p.data) + pieceCost
	switch {
	case t.closed || t.ended:
		return nil, errTapClosed
	case t.missing > 0:
		if p.code == asciicast.Output {
			t.missing += int64(len(p.data))
		}
		t.missing += p.missing
		return nil, nil
	case t.queued > 0 && t.queued+cost > tapQueue:
		t.poke(t.full)
		return t.room, nil
	}
	t.queue, t.queued = append(t.queue, p), t.queued+cost
	t.any = t.any || p.code == asciicast.Output
	t.poke(t.wake)
	return nil, nil
}

func (t *recordingTap) leaveOut(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missing += int64(n)
	t.poke(t.wake)
}

// take takes some of the queue.
func (t *recordingTap) take() (batch []piece, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, size := 0, 0
	for n < len(t.queue) && (n == 0 || size+len(t.queue[n].data) <= tapBatch) {
		size += len(t.queue[n].data)
		n++
	}
	batch = t.queue[:n:n]
	t.queue, t.queued = t.queue[n:], t.queued-size-n*pieceCost
	if len(t.queue) == 0 {
		t.queue = nil
		if t.missing > 0 {
			batch = append(batch, piece{at: t.now(), missing: t.missing, why: "it could not be written in time"})
			t.missing = 0
		}
	}
	close(t.room)
	t.room = make(chan struct{})
	return batch, t.ended
}

// run writes until the session has ended or the server does.
func (t *recordingTap) run(ctx context.Context) {
	defer close(t.done)
	for {
		select {
		case <-t.wake:
		case <-ctx.Done():
		}
		batch, ended := t.take()
		t.write(batch)
		for wait := t.flush(); wait > 0 && ctx.Err() == nil && !ended; wait = t.flush() {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			ended = t.hasEnded()
		}
		more := t.hasMore()
		switch {
		case ended && !more:
			t.finish()
			return
		case ctx.Err() != nil && !ended:
			t.leave()
			return
		case more:
			continue
		}
		timer := time.NewTimer(gatherTime)
		select {
		case <-timer.C:
		case <-t.full:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (t *recordingTap) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// hasMore reports whether something waits; then run goes around once more.
func (t *recordingTap) hasMore() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	more := len(t.queue) > 0 || t.missing > 0
	if more {
		t.poke(t.wake)
	}
	return more
}

// write turns a batch into lines, which are held back.
func (t *recordingTap) write(batch []piece) {
	f := t.file
	for _, p := range batch {
		switch {
		case p.missing > 0:
			f.offset += p.missing
			f.w.Break(p.at, fmt.Sprintf("%d bytes of output are missing here: %s", p.missing, p.why))
		case p.code == asciicast.Output:
			f.offset += int64(len(p.data))
			f.w.Output(p.at, p.data)
		case p.code == asciicast.Input:
			f.w.Input(p.at, p.data)
		case p.code == asciicast.Resize:
			f.w.Resize(p.at, int(p.size.Cols), int(p.size.Rows))
		}
	}
}

// flush writes the lines; a positive wait says that it has failed, and when to
// try again.
func (t *recordingTap) flush() (wait time.Duration) {
	err := t.all.reserve(t.owner, int64(t.file.w.Buffered()))
	if err == nil {
		if err = t.file.flush(); err != nil {
			t.all.count(-int64(t.file.w.Buffered()))
		}
	}
	log := t.all.e.cfg.Log
	switch {
	case err != nil && !t.failing:
		log.Warn("a recording cannot be written; its session goes on", "recording", t.id, "err", err)
		t.all.e.tellSession(t.of, "the recording of this session cannot be written now; what it misses is marked in it")
	case err == nil && t.failing:
		log.Info("a recording goes on", "recording", t.id)
		t.all.e.tellSession(t.of, "the recording of this session goes on")
	}
	if t.failing = err != nil; t.failing {
		return retryTime
	}
	t.tell(false)
	return 0
}

// tell lets those who follow know.
func (t *recordingTap) tell(closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file.size == t.bytes && !closed {
		return
	}
	t.bytes, t.last, t.closed = t.file.size, t.file.w.Last(), t.closed || closed
	close(t.changed)
	t.changed = make(chan struct{})
}

// state is how far the recording is.
func (t *recordingTap) state() (bytes int64, last time.Duration, closed bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes, t.last, t.closed, t.changed
}

// goesOn reports whether the recording goes on without this server.
func (t *recordingTap) goesOn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left
}

// leave closes the files of a session that goes on after this server.
func (t *recordingTap) leave() {
	if err := t.file.sync(); err != nil {
		t.all.e.cfg.Log.Warn("sync a recording", "recording", t.id, "err", err)
	}
	t.file.close()
	t.mu.Lock()
	t.left = true
	t.mu.Unlock()
	t.tell(true)
	t.all.forget(t.id)
}

// finish ends the recording. One of a session that never came about goes.
func (t *recordingTap) finish() {
	t.mu.Lock()
	nothing := !t.any && !t.exit && t.file.offset == 0
	t.mu.Unlock()
	whole := !t.failing && t.file.w.End() == nil
	if err := t.file.sync(); err != nil {
		t.all.e.cfg.Log.Warn("sync a recording", "recording", t.id, "err", err)
		whole = false
	}
	t.file.close()
	t.tell(true)
	defer t.all.forget(t.id)
	if nothing {
		t.all.drop(t.id)
		return
	}
	t.all.close(t.id, t.file.size, t.file.w.Last(), whole)
}
