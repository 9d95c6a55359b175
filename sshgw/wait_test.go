package sshgw

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// syncBuffer is a bytes.Buffer for several goroutines that can be waited on.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
	// changed is replaced and closed on each write.
	changed chan struct{}
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// waitFor waits until text has been written.
func (b *syncBuffer) waitFor(tb testing.TB, text string) {
	tb.Helper()
	late := time.After(patience)
	for {
		b.mu.Lock()
		if strings.Contains(b.buf.String(), text) {
			b.mu.Unlock()
			return
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			tb.Fatalf("%q was not written; there is %q", text, b.String())
		}
	}
}

// eventually polls for a state of the operating system or the runtime, which
// tell nobody when they change.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			tb.Fatalf("%s did not come true\n%s", what, stacks())
		}
	}
}

// checkLeaks fails the test if it ends with more goroutines than it began with.
func checkLeaks(tb testing.TB) {
	tb.Helper()
	before := runtime.NumGoroutine()
	tb.Cleanup(func() {
		if !tb.Failed() {
			eventually(tb, fmt.Sprintf("return to %d goroutines", before), func() bool { return runtime.NumGoroutine() <= before })
		}
	})
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
