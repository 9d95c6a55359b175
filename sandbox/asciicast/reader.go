package asciicast

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// maxLine bounds a line: the data of an event, in which JSON may need six
// bytes for each of the terminal's, and what stands around it.
const maxLine = 6*maxData + 4096

// Reader reads a recording. It trusts nothing of it: what it returns is
// bounded, in order of time, and UTF-8.
type Reader struct {
	Header Header

	r    *bufio.Reader
	last time.Duration
}

// NewReader reads the header. ErrFormat says that it is no recording; io.EOF
// that there is nothing yet.
func NewReader(r io.Reader) (*Reader, error) {
	out := &Reader{r: bufio.NewReaderSize(r, maxLine)}
	line, err := out.line()
	if err != nil {
		return nil, err
	}
	out.Header, err = parseHeader(line)
	return out, err
}

// Next returns the next event, and io.EOF at the end; a torn last line is the
// end, too. Events with codes that are unknown are left out.
func (r *Reader) Next() (Event, error) {
	for {
		line, err := r.line()
		if err != nil {
			return Event{}, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		e, err := parseEvent(line)
		if err != nil {
			return Event{}, err
		}
		r.last = max(r.last, e.At)
		e.At = r.last
		switch e.Code {
		case Output, Input, Resize, Marker:
			return e, nil
		}
	}
}

// Waiting reports whether the next event has to be waited for, if the reader
// below makes one wait.
func (r *Reader) Waiting() bool {
	ahead, _ := r.r.Peek(r.r.Buffered())
	return bytes.IndexByte(ahead, '\n') < 0
}

func (r *Reader) line() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	switch {
	case err == nil:
		return line, nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrFormat, maxLine)
	}
	return nil, err
}

// Tail finds where the last whole line of a file ends that is not longer than
// size, and when the last event was. A file without a whole line has length 0.
func Tail(f io.ReaderAt, size int64) (length int64, last time.Duration, err error) {
	const step = 64 << 10
	var tail []byte
	for start := size; start > 0 && int64(len(tail)) < 2*maxLine; {
		n := min(step, start)
		start -= n
		more := make([]byte, n)
		if _, err := f.ReadAt(more, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		tail = slices.Concat(more, tail)
		end := bytes.LastIndexByte(tail, '\n')
		if end < 0 {
			continue
		}
		begin := bytes.LastIndexByte(tail[:end], '\n')
		if begin < 0 && start > 0 {
			continue
		}
		length = start + int64(end) + 1
		if begin < 0 {
			_, err = parseHeader(tail[:end])
			return length, 0, err
		}
		e, err := parseEvent(tail[begin+1 : end])
		return length, e.At, err
	}
	if int64(len(tail)) < size {
		return 0, 0, fmt.Errorf("%w: a line of more than %d bytes", ErrFormat, maxLine)
	}
	return 0, 0, nil
}

// TailOf is Tail of all of a file.
func TailOf(f *os.File) (length int64, last time.Duration, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	return Tail(f, info.Size())
}
