package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/store"
)

// A recording whose files are damaged does not keep its session from going on.
func TestADamagedRecordingEnds(t *testing.T) {
	w := newWorld(t)
	box := w.create(alice, sandbox.CreateRequest{})
	for name, damage := range map[string]func(path string) error{
		"gone":    os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"another": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("nonsense\n", 1000)), 0o600) },
	} {
		x := w.recorded(box)
		x.print("hello")
		w.close()
		if err := damage(w.recordingFile(x.session.Recording)); err != nil {
			t.Fatal(err)
		}
		w.open()
		if tap, _, err := w.engine.GoOnRecording(t.Context(), &x.session); tap != nil || err != nil {
			t.Errorf("%s: goes on with %v, %v", name, tap, err)
		}
		if r, err := w.engine.As(admin).Recording(t.Context(), x.session.Recording); err != nil || r.EndedAt.IsZero() || r.Complete {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// What a crash has cut short is ended by the next start, and can be played.
func TestReconcileEndsRecordings(t *testing.T) {
	w := newWorld(t)
	box := w.create(alice, sandbox.CreateRequest{})
	x := w.recorded(box)
	x.print("all there is\n")
	w.close()
	st, err := store.Open(t.Context(), store.Config{Path: filepath.Join(w.dir, "state.db")})
	must(t, err)
	_, err = st.UpdateSession(t.Context(), x.session.ID, func(s *sandbox.Session) ([]sandbox.Event, error) {
		s.Status = sandbox.SessionEnded
		return nil, nil
	})
	must(t, err)
	must(t, st.Close())
	orphan := filepath.Join(w.dir, "recordings", "rec_aaaaaaaaaaaa.cast")
	foreign := filepath.Join(w.dir, "recordings", "mine.cast")
	for _, path := range []string{orphan, foreign} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.open()
	r, err := w.engine.As(alice).Recording(t.Context(), x.session.Recording)
	if err != nil || r.Complete || r.EndedAt.IsZero() || r.Bytes == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := w.cast(r.ID); got != "|o:all there is\n|m:the recording was cut short here" {
		t.Errorf("it holds %q", got)
	}
	if _, err := os.Stat(orphan); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file without a record: %v", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("somebody else's file: %v", err)
	}
}

func TestRecordingsAreKeptForATime(t *testing.T) {
	w := newWorld(t)
	box := w.create(alice, sandbox.CreateRequest{})
	old, open := w.recorded(box), w.recorded(box)
	old.print("old")
	open.print("open")
	old.end()
	w.now.advance(29 * 24 * time.Hour)
	young := w.recorded(box)
	young.print("young")
	young.end()
	w.engine.TrimRecordings(t.Context())
	if _, total, _ := w.engine.As(alice).Recordings(t.Context(), "", 0, 0); total != 3 {
		t.Errorf("%d are left before their time", total)
	}
	w.now.advance(2 * 24 * time.Hour)
	w.engine.TrimRecordings(t.Context())
	list, _, err := w.engine.As(alice).Recordings(t.Context(), "", 0, 0)
	if err != nil || len(list) != 2 || list[0].ID != young.session.Recording || list[1].ID != open.session.Recording {
		t.Errorf("%+v, %v", list, err)
	}
}

// Of too much the oldest that is complete goes. One that is made waits when
// nothing can go, and goes on as soon as something can: its session does not
// wait for that.
func TestRecordingsAreKeptUpToASize(t *testing.T) {
	const unit = 64 << 10
	for _, policy := range []sandbox.RecordPolicy{sandbox.RecordOptIn, sandbox.RecordAlways} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t, func(cfg *sandbox.Config) { cfg.Record, cfg.RecordingsMax = policy, 64*unit })
			box := w.create(alice, sandbox.CreateRequest{})
			first := w.recorded(box)
			first.print(strings.Repeat("1", 40*unit))
			first.end()
			second, third := w.recorded(box), w.recorded(box)
			second.print(strings.Repeat("2", 62*unit))
			w.written(second.session.Recording, 62*unit)
			if _, err := w.engine.As(alice).Recording(t.Context(), first.session.Recording); !fault.Is(err, fault.NotFound) {
				t.Errorf("the oldest stays: %v", err)
			}
			// Together they are too much, and neither is complete.
			third.print(strings.Repeat("3", 30*unit))
			const more = 2048 // KiB, and more than waits
			for range more {
				third.print(strings.Repeat("x", 1<<10))
			}
			x, err := w.tape(box, sandbox.SessionRequest{Record: true})
			switch {
			case policy == sandbox.RecordAlways:
				if fault.CodeOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "records every session") {
					t.Errorf("a session that cannot be recorded: %v", err)
				}
			case err != nil || x.tap != nil || x.session.Recording != "" || len(x.told) != 1 || !strings.Contains(x.told[0], "not recorded: the space for recordings"):
				t.Errorf("a session that cannot be recorded: %v, told %q", err, x.told)
			}
			second.tap.Ended(&guest.Exit{}) // and what it takes goes, for the third one
			w.gone(second.session.Recording)
			third.end()
			got := w.cast(third.session.Recording)
			var missing int
			_, remark, _ := strings.Cut(got, "|m:")
			if _, err := fmt.Sscanf(remark, "%d bytes of output are missing here: it could not be written in time", &missing); err != nil {
				t.Fatalf("the remark %.100q: %v", remark, err)
			}
			if n := strings.Count(got, "3"); n != 30*unit+strings.Count(remark, "3") {
				t.Errorf("%d of the first bytes are there", n)
			}
			if n := strings.Count(got, "x"); n == 0 || n+missing != more<<10 {
				t.Errorf("%d bytes are there and %d are missing, of %d", n, missing, more<<10)
			}
		})
	}
}

// gone waits until a recording is no more.
func (w *world) gone(id string) {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for {
		written := w.store.Written()
		_, err := w.engine.As(admin).Recording(w.t.Context(), id)
		if fault.Is(err, fault.NotFound) {
			return
		}
		must(w.t, err)
		select {
		case <-written:
		case <-deadline:
			w.t.Fatal("the recording stays")
		}
	}
}

// written waits until so much of a recording is in its file.
func (w *world) written(id string, bytes int64) {
	w.t.Helper()
	ctx := w.t.Context()
	seen := make(chan string, 1024)
	go func() {
		_ = w.engine.As(admin).ReadRecording(ctx, id, sandbox.AsciicastV2, true, sendTo(seen))
		close(seen)
	}()
	for n := int64(0); n < bytes; {
		select {
		case s := <-seen:
			n += int64(len(s))
		case <-time.After(time.Minute):
			w.t.Fatal("it is not written")
		}
	}
}
