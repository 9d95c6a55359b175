package sandbox_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// These tests record real sessions, with a process behind them.

func toRecord(name string) sandbox.SessionRequest {
	r := request(name)
	r.Record = true
	return r
}

// recordingOf waits until the recording of a session has ended, and returns it
// as text.
func (w *world) recordingOf(box, session string) (sandbox.Recording, string) {
	w.t.Helper()
	s, err := w.engine.As(admin).Session(w.t.Context(), box, session)
	must(w.t, err)
	if s.Recording == "" {
		w.t.Fatalf("not recorded: %+v", s)
	}
	rec := w.until(s.Recording, func(r sandbox.Recording) bool { return !r.EndedAt.IsZero() })
	text, err := w.play(admin, rec.ID, sandbox.PlainText, false)
	must(w.t, err)
	return rec, text
}

func TestASessionIsRecorded(t *testing.T) {
	w := newWorld(t, func(cfg *sandbox.Config) { cfg.RecordInput = true })
	box := w.create(alice, sandbox.CreateRequest{})
	r := toRecord("main")
	r.RecordInput = true
	c := w.session(alice, box.ID, r)
	c.hears("this session is recorded, and so is everything you type")
	opened, _ := c.proc.Session()
	c.shows("ready")
	c.types("first 1\n")
	c.shows("got first 1")
	must(t, c.proc.Resize(t.Context(), guest.Size{Rows: 40, Cols: 120}))

	// Who comes later is told, and their typing is in it; nobody's screen that
	// is drawn anew is.
	also := w.session(alice, box.ID, request("main"))
	also.hears("this session is recorded, and so is everything you type")
	also.types("second 2\n")
	also.shows("got second 2")
	c.types("exit 0\n")
	_, err := c.end()
	must(t, err)
	rec, text := w.recordingOf(box.ID, opened.ID)
	if !rec.Complete || rec.Session != "main" {
		t.Errorf("recorded as %+v", rec)
	}
	for _, line := range []string{"ready", "got first 1", "got second 2"} {
		if strings.Count(text, line) != 1 {
			t.Errorf("%q is not once in %q", line, text)
		}
	}
	cast := w.cast(rec.ID)
	for _, typed := range []string{"|i:first 1\n", "|i:second 2\n", "|r:120x40"} {
		if !strings.Contains(cast, typed) {
			t.Errorf("%q is not in %q", typed, cast)
		}
	}
	_, err = w.play(bob, rec.ID, sandbox.PlainText, false)
	if err == nil {
		t.Error("a stranger plays it")
	}
}

// The server is restarted, and cut off in the middle, while a session goes on:
// its recording has all of it, once.
func TestARecordingSurvivesTheServer(t *testing.T) {
	w := newWorld(t)
	box := w.create(alice, sandbox.CreateRequest{})
	c := w.session(alice, box.ID, toRecord("main"))
	opened, _ := c.proc.Session()
	n := 0
	speak := func(c *terminal) {
		t.Helper()
		n++
		c.types(fmt.Sprintf("line %d\n", n))
		c.shows(fmt.Sprintf("got line %d", n))
	}
	speak(c)
	for round := range 3 {
		w.close()
		if round > 0 {
			// It died before it noted what it had written, in the middle of more.
			f, err := os.OpenFile(w.recordingFile(opened.Recording), os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			fmt.Fprint(f, "[99.5, \"o\", \"twice\"]\n[99.6, \"o\", \"half")
			must(t, f.Close())
		}
		w.open()
		c = w.session(alice, box.ID, request("main"))
		c.hears("this session is recorded")
		speak(c)
	}
	// It goes on with nobody there. Who follows it is told that there is more.
	c.leave()
	seen, followed := make(chan string, 64), make(chan error, 1)
	e := w.engine
	go func() {
		followed <- e.As(alice).ReadRecording(t.Context(), opened.Recording, sandbox.AsciicastV2, true, sendTo(seen))
	}()
	<-seen
	w.restart()
	if err := <-followed; !fault.Is(err, fault.Unavailable) {
		t.Errorf("a follower when the server stops: %v", err)
	}
	c = w.session(alice, box.ID, request("main"))
	speak(c)
	c.types("exit 0\n")
	_, err := c.end()
	must(t, err)
	rec, text := w.recordingOf(box.ID, opened.ID)
	if !rec.Complete {
		t.Errorf("recorded as %+v", rec)
	}
	for i := range n {
		if line := fmt.Sprintf("got line %d\n", i+1); strings.Count(text, line) != 1 {
			t.Errorf("%q is not once in %q", line, text)
		}
	}
	if strings.Contains(text, "twice") || strings.Contains(text, "half") || strings.Contains(w.cast(rec.ID), "missing") {
		t.Errorf("recorded %q", w.cast(rec.ID))
	}
}

// Where the recording can go no further the session does, and everybody in it
// is told.
func TestASessionOutlivesTheSpaceForRecordings(t *testing.T) {
	w := newWorld(t, func(cfg *sandbox.Config) { cfg.Record, cfg.RecordingsMax = sandbox.RecordAlways, 32<<10 })
	box := w.create(alice, sandbox.CreateRequest{})
	r := request("main")
	r.Command.Args = []string{"/bin/sh", "-c", "head -c 31500 /dev/zero | tr '\\0' x; read -r go; head -c 31500 /dev/zero | tr '\\0' y; " + program}
	c := w.session(alice, box.ID, r)
	opened, _ := c.proc.Session()
	w.written(opened.Recording, 31500)
	c.types("go\n")
	c.shows("ready")
	c.hears("the recording of this session cannot be written now")
	c.types("still 1\n")
	c.shows("got still 1")
	_, err := w.tryOpen(alice, box.ID, request("other"), nil)
	if err == nil || !strings.Contains(err.Error(), "this server records every session, and cannot record this one") {
		t.Errorf("another session: %v", err)
	}
	c.types("exit 0\n")
	if exit, err := c.end(); err != nil || exit.Code != 0 {
		t.Errorf("it ended with %+v, %v", exit, err)
	}
	rec := w.until(opened.Recording, func(r sandbox.Recording) bool { return !r.EndedAt.IsZero() })
	if rec.Complete || rec.Bytes > 32<<10 {
		t.Errorf("recorded as %+v", rec)
	}
}
