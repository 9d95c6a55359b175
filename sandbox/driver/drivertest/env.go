package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// patience bounds every single wait of the suite. It is a bound for what hangs,
// not a measure of speed: nothing waits for it to pass.
const patience = 2 * time.Minute

// The name and value of a variable in the environment of the test process.
const (
	secretName  = "SANDGATE_DRIVERTEST_SECRET"
	secretValue = "must-not-reach-a-sandbox"
)

// env is a driver on a state folder.
type env struct {
	h     Harness
	state string
	d     driver.Driver

	scratch    string        // outlives the sandboxes
	roguePath  func() string // builds the rogue guest when first asked
	escapePath func() string // builds the attacking program when first asked
}

// newEnv opens a driver on a new state folder. At the end of t every sandbox
// is removed, the driver closed and the folder deleted; what cannot be deleted
// fails the test.
func newEnv(t *testing.T, h Harness) *env {
	t.Helper()
	// Not t.TempDir: its paths are long, and sockets in them have to fit into
	// 107 bytes.
	state, err := os.MkdirTemp("", "sgt")
	if err != nil {
		t.Fatal(err)
	}
	e := &env{h: h, state: state, scratch: t.TempDir()}
	e.roguePath = sync.OnceValue(func() string { return buildProgram(t, roguePackage) })
	e.escapePath = sync.OnceValue(func() string { return buildProgram(t, escapePackage) })
	e.d = h.New(t, state)
	t.Cleanup(func() {
		e.removeAll(t)
		if err := e.d.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
		if err := os.RemoveAll(state); err != nil {
			t.Errorf("the state folder cannot be deleted: %v", err)
		}
	})
	return e
}

// removeAll removes every sandbox and checks that nothing is left over.
func (e *env) removeAll(t *testing.T) {
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list, err := e.d.List(c)
	if err != nil {
		t.Errorf("list what is left: %v", err)
	}
	for _, s := range list {
		if err := e.d.Remove(c, s.ID); err != nil {
			t.Errorf("remove %s: %v", s.ID, err)
		}
	}
	cleaner, ok := e.d.(driver.Cleaner)
	if !ok {
		return
	}
	if lines, err := cleaner.Leftovers(c, false); err != nil || len(lines) > 0 {
		t.Errorf("leftovers at the end: %q, %v", lines, err)
	}
}

// restart closes the driver and opens a new one on the same state.
func (e *env) restart(t *testing.T) {
	t.Helper()
	if err := e.d.Close(); err != nil {
		t.Fatalf("close the driver: %v", err)
	}
	e.d = e.h.New(t, e.state)
}

// need skips the test when the driver does not support the feature here.
func (e *env) need(t *testing.T, feature string) {
	t.Helper()
	if s := e.support(t, feature); !s.OK {
		t.Skipf("%s: %s", feature, s.Reason)
	}
}

func (e *env) support(t *testing.T, feature string) driver.Support {
	t.Helper()
	caps, err := e.d.Capabilities(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	return caps.Support[feature]
}

// spec returns a good spec with a new id.
func (e *env) spec() driver.Spec {
	return driver.Spec{ID: newID(), Rootfs: e.h.Rootfs, Guest: e.h.Guest}
}

// create makes a sandbox that is removed at the end of the test.
func (e *env) create(t *testing.T, change ...func(*driver.Spec)) string {
	t.Helper()
	s := e.spec()
	for _, f := range change {
		f(&s)
	}
	if err := e.d.Create(ctx(t), s); err != nil {
		t.Fatalf("create %s: %s", s.ID, causes(err))
	}
	t.Cleanup(func() { e.remove(t, s.ID) })
	return s.ID
}

// remove removes a sandbox and checks that nothing of it is left.
func (e *env) remove(t *testing.T, id string) {
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.d.Remove(c, id); err != nil {
		t.Errorf("remove %s: %s", id, causes(err))
		return
	}
	e.noTrace(t, id)
}

// noTrace fails the test when anything of the sandbox exists.
func (e *env) noTrace(t *testing.T, id string) {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := e.d.Inspect(c, id)
	wantCode(t, err, fault.NotFound)
	list, err := e.d.List(c)
	if err != nil {
		t.Errorf("list: %v", err)
	}
	for _, s := range list {
		if s.ID == id {
			t.Errorf("%s is still listed as %s", id, s.State)
		}
	}
	if e.h.Leaks == nil {
		return
	}
	for _, line := range e.h.Leaks(t, e.state, id) {
		t.Errorf("left of %s: %s", id, line)
	}
}

// boot makes and starts a sandbox and connects to its guest.
func (e *env) boot(t *testing.T, change ...func(*driver.Spec)) *box {
	t.Helper()
	b := &box{env: e, id: e.create(t, change...)}
	b.start(t)
	return b
}

// wantState fails the test when the sandbox is not in one of the states.
func (e *env) wantState(t *testing.T, id string, want ...driver.State) driver.Status {
	t.Helper()
	s, err := e.d.Inspect(ctx(t), id)
	if err != nil {
		t.Fatalf("inspect %s: %v", id, err)
	}
	checkState(t, s, id, want...)
	return s
}

func checkState(t *testing.T, s driver.Status, id string, want ...driver.State) {
	t.Helper()
	if s.ID != id {
		t.Errorf("the status is of %q, not of %q", s.ID, id)
	}
	if !slices.Contains(want, s.State) {
		t.Errorf("%s is %s (%q), want %v", id, s.State, s.Exit.Reason, want)
	}
}

// ctx bounds one test.
func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return c
}

// newID returns an id no other test on this host uses.
func newID() string {
	b := make([]byte, 6)
	rand.Read(b) // never fails
	return "t" + hex.EncodeToString(b)
}

// wantCode fails the test when err is not a fault of the code, fit for people.
func wantCode(t testing.TB, err error, codes ...fault.Code) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %v", codes)
		return
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Errorf("%v (%T) is no fault, want %v", err, err, codes)
		return
	}
	if !oneLine(f.Message) {
		t.Errorf("message %q is not one line for a person", f.Message)
	}
	if !slices.Contains(codes, f.Code) {
		t.Errorf("code %s (%v; %v), want %v", f.Code, err, f.Cause, codes)
	}
}

func oneLine(s string) bool { return s != "" && !strings.ContainsAny(s, "\r\n") }

// causes is the error with what it hides from people.
func causes(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Cause != nil {
		return fmt.Sprintf("%s: %s (%v)", f.Code, f, f.Cause)
	}
	return err.Error()
}

// connect dials a sandbox and shakes hands with its guest.
func connect(t testing.TB, d driver.Driver, id string) *guest.Conn {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := d.Dial(c, id)
	if err != nil {
		t.Fatalf("dial %s: %s", id, causes(err))
	}
	conn, err := guest.Connect(c, stream)
	if err != nil {
		t.Fatalf("connect to the guest of %s: %v", id, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
