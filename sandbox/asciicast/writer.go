package asciicast

import (
	"io"
	"strconv"
	"time"
)

// Writer makes the lines of a recording. It holds them back until Flush, and
// always hands whole lines to the writer below, so that a reader of a growing
// file never sees half of one. It is for one goroutine.
type Writer struct {
	w       io.Writer
	buf     []byte
	last    time.Duration
	out, in text
}

// NewWriter begins a recording with its header; the header is held back, too.
func NewWriter(w io.Writer, h Header) *Writer {
	return &Writer{w: w, buf: append(appendJSON(nil, h.v2()), '\n')}
}

// Continue goes on with a recording whose last event was at the given time.
func Continue(w io.Writer, last time.Duration) *Writer { return &Writer{w: w, last: last} }

// Output notes what was printed.
func (w *Writer) Output(at time.Duration, p []byte) { w.bytes(at, Output, &w.out, p) }

// Input notes what was typed.
func (w *Writer) Input(at time.Duration, p []byte) { w.bytes(at, Input, &w.in, p) }

// Resize notes a new size.
func (w *Writer) Resize(at time.Duration, cols, rows int) {
	w.event(at, Resize, strconv.Itoa(side(cols, 80))+"x"+strconv.Itoa(side(rows, 24)))
}

// Mark notes a remark.
func (w *Writer) Mark(at time.Duration, remark string) { w.event(at, Marker, remark) }

// Break notes a remark about output that is missing: what comes next completes
// no character that came before.
func (w *Writer) Break(at time.Duration, remark string) {
	if s := w.out.rest(); s != "" {
		w.event(at, Output, s)
	}
	w.event(at, Marker, remark)
}

// Held is how many bytes of output wait for the rest of their character. They
// are in no line yet.
func (w *Writer) Held() int { return w.out.n }

// Buffered is how many bytes Flush would write.
func (w *Writer) Buffered() int { return len(w.buf) }

// Last is when the last event was.
func (w *Writer) Last() time.Duration { return w.last }

// Flush writes the lines there are. When it fails they stay for another try,
// with which they begin anew.
func (w *Writer) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if _, err := w.w.Write(w.buf); err != nil {
		return err
	}
	if w.buf = w.buf[:0]; cap(w.buf) > 1<<20 {
		w.buf = nil // it was an exception
	}
	return nil
}

// End adds what is held back for ever, and flushes.
func (w *Writer) End() error {
	if s := w.out.rest(); s != "" {
		w.event(w.last, Output, s)
	}
	if s := w.in.rest(); s != "" {
		w.event(w.last, Input, s)
	}
	return w.Flush()
}

// maxData bounds the data of one event, so that every line fits a Reader.
const maxData = 64 << 10

func (w *Writer) bytes(at time.Duration, code Code, t *text, p []byte) {
	for len(p) > 0 {
		n := min(len(p), maxData)
		if s := t.take(p[:n]); s != "" {
			w.event(at, code, s)
		}
		p = p[n:]
	}
}

// event adds a line. Time does not go back in a recording, whatever a clock
// does.
func (w *Writer) event(at time.Duration, code Code, data string) {
	w.last = min(max(at, w.last), maxTime)
	w.buf = appendEvent(w.buf, w.last.Seconds(), 6, code, data)
}
