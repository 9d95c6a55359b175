package fake

import (
	"context"
	"sync"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Op names a method of the driver.
type Op string

// The methods that can be made to fail or to wait.
const (
	Capabilities Op = "Capabilities"
	Create       Op = "Create"
	Start        Op = "Start"
	Dial         Op = "Dial"
	Stop         Op = "Stop"
	Remove       Op = "Remove"
	Inspect      Op = "Inspect"
	List         Op = "List"
	Wait         Op = "Wait"
	Save         Op = "Save"
	Restore      Op = "Restore"
	Export       Op = "Export"
	Import       Op = "Import"
	Discard      Op = "Discard"
	Suspend      Op = "Suspend"
	Resume       Op = "Resume"
	Resize       Op = "Resize"
	Use          Op = "Usage"
)

// faults is what was arranged to go wrong. Its zero value is nothing.
type faults struct {
	mu    sync.Mutex
	calls map[Op]int
	fails map[Op]map[int]error // by the number of the call
	gates map[Op]*Gate
}

// FailNext makes the next call of op return err before it does anything.
func (h *Host) FailNext(op Op, err error) { h.FailNth(op, 1, err) }

// FailNth makes the n-th call of op from now on, counted from 1, return err
// before it does anything. It replaces what was arranged for that call.
func (h *Host) FailNth(op Op, n int, err error) {
	f := &h.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails == nil {
		f.fails = make(map[Op]map[int]error)
	}
	if f.fails[op] == nil {
		f.fails[op] = make(map[int]error)
	}
	f.fails[op][f.calls[op]+n] = err
}

// Calls is how often op was called.
func (h *Host) Calls(op Op) int {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	return h.faults.calls[op]
}

// Gate holds calls of one method back.
type Gate struct {
	entered chan struct{}
	release chan struct{}
	once    sync.Once
}

// Hold makes every call of op wait, before it does anything, until the gate is
// opened or the call's context ends.
func (h *Host) Hold(op Op) *Gate {
	g := &Gate{entered: make(chan struct{}, 1024), release: make(chan struct{})}
	f := &h.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gates == nil {
		f.gates = make(map[Op]*Gate)
	}
	f.gates[op] = g
	return g
}

// Entered receives once for every call that has come to the gate.
func (g *Gate) Entered() <-chan struct{} { return g.entered }

// Open lets all calls pass, now and later. It may be called again.
func (g *Gate) Open() { g.once.Do(func() { close(g.release) }) }

// enter is the beginning of every method: it counts, waits and fails as
// arranged.
func (h *Host) enter(ctx context.Context, op Op) error {
	f := &h.faults
	f.mu.Lock()
	if f.calls == nil {
		f.calls = make(map[Op]int)
	}
	f.calls[op]++
	err := f.fails[op][f.calls[op]]
	gate := f.gates[op]
	f.mu.Unlock()
	if gate != nil {
		select {
		case gate.entered <- struct{}{}:
		default: // nobody counts that far
		}
		select {
		case <-gate.release:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return fault.From(ctx.Err())
	}
	return err
}
