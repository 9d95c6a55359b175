package sshgw

import (
	"io"
	"sync"
)

// maxTypeahead is how much input waits for a command that does not read.
const maxTypeahead = 64 << 10

// typeahead is the standard input of a command: a pipe with room in it.
type typeahead struct {
	mu      sync.Mutex
	changed sync.Cond // any of the below has changed
	buf     []byte
	ended   bool // no more will be written
	dropped bool // nobody will read
}

func newTypeahead() *typeahead {
	t := new(typeahead)
	t.changed.L = &t.mu
	return t
}

// write adds b. Without wait, what does not fit is dropped silently.
func (t *typeahead) write(b []byte, wait bool) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := 0; ; {
		if t.ended || t.dropped {
			return n, io.ErrClosedPipe
		}
		m := min(len(b)-n, maxTypeahead-len(t.buf))
		t.buf = append(t.buf, b[n:n+m]...)
		n += m
		t.changed.Broadcast()
		if n == len(b) || !wait {
			return len(b), nil
		}
		t.changed.Wait()
	}
}

// Read waits for input. io.EOF comes after Close, when all was read.
func (t *typeahead) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(p) > 0 && len(t.buf) == 0 {
		if t.ended || t.dropped {
			return 0, io.EOF
		}
		t.changed.Wait()
	}
	n := copy(p, t.buf)
	t.buf = t.buf[:copy(t.buf, t.buf[n:])]
	if len(t.buf) == 0 {
		t.buf = nil
	}
	t.changed.Broadcast()
	return n, nil
}

// Close ends the input.
func (t *typeahead) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.changed.Broadcast()
	return nil
}

// abandon says that nobody will read any more: writers get an error.
func (t *typeahead) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped, t.buf = true, nil
	t.changed.Broadcast()
}
