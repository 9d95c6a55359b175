package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// TestMain lets the test binary be the writer that TestKill kills, and the
// other user of TestOpenForbidden.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashWriterEnv); path != "" {
		crashWriter(path)
	}
	if path := os.Getenv(openerEnv); path != "" {
		opener(path)
	}
	os.Exit(m.Run())
}

// epoch is when the tests take place.
var epoch = time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)

// clock is a clock that moves a second whenever it is read.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Second)
	return c.now
}

// openStore opens a store in a new folder and closes it after the test.
func openStore(tb testing.TB) *Store {
	tb.Helper()
	return openAt(tb, filepath.Join(tb.TempDir(), "state", "state.db"))
}

func openAt(tb testing.TB, path string) *Store {
	tb.Helper()
	c := &clock{now: epoch}
	s, err := Open(tb.Context(), Config{Path: path, Now: c.Now})
	if err != nil {
		tb.Fatalf("open: %v (%v)", err, fault.From(err).Cause)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

// must fails the test on an error, with its cause.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("%v (cause: %v)", err, fault.From(err).Cause)
	}
}

// wantCode fails the test unless err has the code and is one line.
func wantCode(tb testing.TB, err error, code fault.Code) *fault.Error {
	tb.Helper()
	if !fault.Is(err, code) {
		tb.Fatalf("got error %v (%v), want code %s", err, fault.CodeOf(err), code)
	}
	return fault.From(err)
}

// newSandbox is a small live sandbox.
func newSandbox(id string) sandbox.Sandbox {
	return sandbox.Sandbox{
		ID: id, Owner: "alice", Mode: sandbox.Interactive, Status: sandbox.Idle,
		CreatedAt: epoch, UpdatedAt: epoch,
	}
}

func create(tb testing.TB, s *Store, sandboxes ...sandbox.Sandbox) {
	tb.Helper()
	for _, sb := range sandboxes {
		must(tb, s.CreateSandbox(tb.Context(), sb, sandbox.Event{Type: sandbox.EventCreate, Principal: sb.Owner}))
	}
}

// checkEvents fails the test unless the events of a sandbox count 1, 2, 3 …
func checkEvents(tb testing.TB, s *Store, id string) []sandbox.Event {
	tb.Helper()
	events, err := s.Events(context.Background(), id, 0, 0)
	must(tb, err)
	ids := map[string]bool{}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			tb.Fatalf("event %d of %s has seq %d", i, id, e.Seq)
		}
		if e.SandboxID != id || e.ID == "" || ids[e.ID] || e.At.IsZero() {
			tb.Fatalf("event %d of %s is %+v", i, id, e)
		}
		ids[e.ID] = true
	}
	return events
}

func ids(sandboxes []sandbox.Sandbox) string {
	s := ""
	for _, sb := range sandboxes {
		s += fmt.Sprint(sb.ID, " ")
	}
	return s
}
