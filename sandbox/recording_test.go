package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/asciicast"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// taped is a session as far as its recording is concerned.
type taped struct {
	w       *world
	session sandbox.Session
	tap     sandbox.SessionTap
	told    []string
}

var tapes int

// tape begins a session of alice's in a sandbox; its record is in the store.
func (w *world) tape(box sandbox.Sandbox, q sandbox.SessionRequest) (*taped, error) {
	w.t.Helper()
	tapes++
	x := &taped{w: w, session: sandbox.Session{
		ID: fmt.Sprint("ses_", tapes), SandboxID: box.ID, Name: fmt.Sprint("s", tapes), Owner: "alice", Status: sandbox.SessionAttached, CreatedAt: w.now.Now(),
	}}
	q.Command = guest.Command{TTY: &guest.TTY{Term: "xterm", Size: guest.Size{Cols: 90, Rows: 20}}}
	q.Notice = func(line string) { x.told = append(x.told, line) }
	var err error
	if x.tap, err = w.engine.BeginRecording(w.t.Context(), &x.session, &q); err != nil {
		return x, err
	}
	return x, w.store.CreateSession(w.t.Context(), x.session)
}

// recorded is tape for a session that asks to be recorded.
func (w *world) recorded(box sandbox.Sandbox) *taped {
	w.t.Helper()
	x, err := w.tape(box, sandbox.SessionRequest{Record: true})
	if err != nil || x.tap == nil {
		w.t.Fatalf("begin a recording: %v, %v; told %q", x.tap, err, x.told)
	}
	return x
}

func (x *taped) print(s string) {
	x.w.t.Helper()
	if n, err := x.tap.Write([]byte(s)); err != nil || n != len(s) {
		x.w.t.Fatalf("recorded %d of %d bytes: %v", n, len(s), err)
	}
}

// end ends the session and waits until the recording has ended.
func (x *taped) end() sandbox.Recording {
	x.w.t.Helper()
	_, err := x.w.store.UpdateSession(x.w.t.Context(), x.session.ID, func(s *sandbox.Session) ([]sandbox.Event, error) {
		s.Status = sandbox.SessionEnded
		return nil, nil
	})
	if err != nil {
		x.w.t.Fatal(err)
	}
	x.tap.Ended(&guest.Exit{})
	if _, err := x.w.play(admin, x.session.Recording, sandbox.AsciicastV2, true); err != nil {
		x.w.t.Fatal(err)
	}
	return x.w.until(x.session.Recording, func(r sandbox.Recording) bool { return !r.EndedAt.IsZero() })
}

// until waits for a recording to be as wanted.
func (w *world) until(id string, want func(sandbox.Recording) bool) sandbox.Recording {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for {
		written := w.store.Written()
		r, err := w.engine.As(admin).Recording(w.t.Context(), id)
		if err != nil {
			w.t.Fatal(err)
		}
		if want(r) {
			return r
		}
		select {
		case <-written:
		case <-deadline:
			w.t.Fatalf("the recording stays as it is: %+v", r)
		}
	}
}

// play reads a recording.
func (w *world) play(who keys.Principal, id string, f sandbox.RecordingFormat, follow bool) (string, error) {
	var b bytes.Buffer
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	err := w.engine.As(who).ReadRecording(ctx, id, f, follow, &b)
	return b.String(), err
}

// cast is what is in a recording: "o" and "i" and what they hold, "r" and the
// size, "m" and the remark; output that follows output is one.
func (w *world) cast(id string) string {
	w.t.Helper()
	file, err := w.play(admin, id, sandbox.AsciicastV2, false)
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := asciicast.NewReader(strings.NewReader(file))
	if err != nil {
		w.t.Fatalf("%v in %q", err, file)
	}
	var b strings.Builder
	var before asciicast.Code
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Code != asciicast.Output || before != asciicast.Output {
			b.WriteString("|" + string(e.Code) + ":")
		}
		b.WriteString(e.Data)
		before = e.Code
	}
}

func (w *world) recordingFile(id string) string {
	return filepath.Join(w.dir, "recordings", id+".cast")
}

func TestRecordingPolicies(t *testing.T) {
	for _, c := range []struct {
		policy   sandbox.RecordPolicy
		input    bool
		ask      sandbox.SessionRequest
		recorded bool
		told     string
	}{
		{sandbox.RecordNever, false, sandbox.SessionRequest{}, false, ""},
		{sandbox.RecordNever, true, sandbox.SessionRequest{Record: true}, false, "this session is not recorded: this server records none"},
		{sandbox.RecordOptIn, false, sandbox.SessionRequest{}, false, ""},
		{sandbox.RecordOptIn, false, sandbox.SessionRequest{Record: true}, true, "this session is recorded"},
		{sandbox.RecordOptIn, true, sandbox.SessionRequest{RecordInput: true}, true, "this session is recorded, and so is everything you type"},
		{sandbox.RecordAlways, true, sandbox.SessionRequest{}, true, "this session is recorded"},
		{sandbox.RecordAlways, false, sandbox.SessionRequest{RecordInput: true}, true, "what you type is not recorded: this server does not allow it|this session is recorded"},
	} {
		t.Run(fmt.Sprint(c.policy, c.ask.Record, c.ask.RecordInput), func(t *testing.T) {
			w := newWorld(t, func(cfg *sandbox.Config) { cfg.Record, cfg.RecordInput = c.policy, c.input })
			x, err := w.tape(w.create(alice, sandbox.CreateRequest{}), c.ask)
			if err != nil {
				t.Fatal(err)
			}
			if (x.tap != nil) != c.recorded || (x.session.Recording != "") != c.recorded || strings.Join(x.told, "|") != c.told {
				t.Fatalf("tap %v, recording %q, told %q", x.tap, x.session.Recording, x.told)
			}
			if c.recorded && x.tap.WantsInput() != (c.ask.RecordInput && c.input) {
				t.Errorf("wants input: %v", x.tap.WantsInput())
			}
		})
	}
	w := newWorld(t)
	_, err := sandbox.NewEngine(t.Context(), sandbox.Config{Driver: nil, Record: "sometimes", OutputDir: w.dir})
	wantCode(t, err, fault.Invalid)
}

func TestRecordingHoldsTheSession(t *testing.T) {
	w := newWorld(t, func(cfg *sandbox.Config) { cfg.RecordInput = true })
	box := w.create(alice, sandbox.CreateRequest{Name: "dev"})
	x, err := w.tape(box, sandbox.SessionRequest{RecordInput: true})
	if err != nil {
		t.Fatal(err)
	}
	x.tap.Resized(guest.Size{Cols: 90, Rows: 20}) // as it is already
	x.print("caf\xc3")
	x.tap.Input([]byte("ls\r"))
	x.print("\xa9 \xff\x1b[31m")
	w.now.advance(1500 * time.Millisecond)
	x.tap.Resized(guest.Size{Cols: 100, Rows: 30})
	x.tap.Skipped(17)
	x.print("end\r\n")
	rec := x.end()
	if !rec.Complete || rec.Owner != "alice" || rec.SandboxID != box.ID || rec.SessionID != x.session.ID || !rec.Input || rec.Duration < 1500*time.Millisecond {
		t.Errorf("recorded as %+v", rec)
	}
	info, err := os.Stat(w.recordingFile(rec.ID))
	if err != nil || info.Size() != rec.Bytes || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v (%v), the record says %d bytes", info, err, rec.Bytes)
	}
	entries, err := os.ReadDir(filepath.Join(w.dir, "recordings"))
	if err != nil || len(entries) != 1 {
		t.Errorf("besides it there is more: %v, %v", entries, err)
	}
	want := "|o:caf|i:ls\r|o:é \ufffd\x1b[31m|r:100x30|m:17 bytes of output are missing here: the sandbox no longer had it|o:end\r\n"
	if got := w.cast(rec.ID); got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	v3, err := w.play(alice, rec.ID, sandbox.AsciicastV3, false)
	if err != nil || !strings.HasPrefix(v3, `{"version":3,"term":{"cols":90,"rows":20,"type":"xterm"}`) || !strings.Contains(v3, `"title":"dev+`) {
		t.Errorf("version 3: %q, %v", v3, err)
	}
	if text, err := w.play(alice, rec.ID, sandbox.PlainText, false); err != nil || text != "café \ufffdend\n" {
		t.Errorf("text: %q, %v", text, err)
	}
	_, err = w.play(alice, rec.ID, "gif", false)
	wantCode(t, err, fault.Invalid)
	if _, err := x.tap.Write([]byte("late")); err == nil {
		t.Error("a recording that has ended takes output")
	}
}

// A session that never comes about leaves no recording.
func TestRecordingOfNothing(t *testing.T) {
	w := newWorld(t)
	x := w.recorded(w.create(alice, sandbox.CreateRequest{}))
	x.tap.Resized(guest.Size{Cols: 1, Rows: 1})
	x.tap.Ended(nil)
	w.gone(x.session.Recording)
}

func TestRecordingIsFollowed(t *testing.T) {
	w := newWorld(t)
	x := w.recorded(w.create(alice, sandbox.CreateRequest{}))
	seen := make(chan string, 64)
	done := make(chan error, 1)
	go func() {
		done <- w.engine.As(alice).ReadRecording(t.Context(), x.session.Recording, sandbox.PlainText, true, sendTo(seen))
	}()
	for _, line := range []string{"one", "two"} {
		x.print(line + "\r\n")
		select {
		case got := <-seen:
			if got != line+"\n" {
				t.Fatalf("got %q", got)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not come")
		}
	}
	if r, err := w.engine.As(alice).Recording(t.Context(), x.session.Recording); err != nil || r.Complete || !r.EndedAt.IsZero() || r.Bytes == 0 {
		t.Errorf("while it is made: %+v, %v", r, err)
	}
	x.end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	y := w.recorded(w.create(alice, sandbox.CreateRequest{}))
	go func() {
		done <- w.engine.As(alice).ReadRecording(ctx, y.session.Recording, sandbox.AsciicastV2, true, sendTo(seen))
	}()
	<-seen
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a follower who leaves: %v", err)
	}
}

type sendTo chan string

func (c sendTo) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

func TestWhoMaySeeRecordings(t *testing.T) {
	w := newWorld(t)
	box := w.create(alice, sandbox.CreateRequest{})
	x := w.recorded(box)
	x.print("secret")
	wantCode(t, w.engine.As(admin).DeleteRecording(t.Context(), x.session.Recording), fault.State)
	x.end()
	other := w.recorded(w.create(bob, sandbox.CreateRequest{}))
	other.print("x")
	if err := w.engine.As(alice).Delete(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	for who, want := range map[string]int{"root": 2, "alice": 1, "bob": 1} {
		p := map[string]keys.Principal{"root": admin, "alice": alice, "bob": bob}[who]
		if _, total, err := w.engine.As(p).Recordings(t.Context(), "", 0, 0); err != nil || total != want {
			t.Errorf("%s sees %d, %v", who, total, err)
		}
	}
	if list, total, err := w.engine.As(alice).Recordings(t.Context(), box.ID, 10, 0); err != nil || total != 1 || list[0].ID != x.session.Recording {
		t.Errorf("of the sandbox that is gone: %+v, %v", list, err)
	}
	_, _, err := w.engine.As(bob).Recordings(t.Context(), box.ID, 0, 0)
	wantCode(t, err, fault.NotFound)
	_, err = w.engine.As(bob).Recording(t.Context(), x.session.Recording)
	wantCode(t, err, fault.NotFound)
	_, err = w.play(bob, x.session.Recording, sandbox.AsciicastV2, false)
	wantCode(t, err, fault.NotFound)
	wantCode(t, w.engine.As(bob).DeleteRecording(t.Context(), x.session.Recording), fault.NotFound)
	wantCode(t, w.engine.As(alice).DeleteRecording(t.Context(), x.session.Recording), fault.Denied)
	_, err = w.engine.As(keys.Principal{}).Recording(t.Context(), x.session.Recording)
	wantCode(t, err, fault.NotFound)
	if err := w.engine.As(admin).DeleteRecording(t.Context(), x.session.Recording); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.recordingFile(x.session.Recording)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its file: %v", err)
	}
}
