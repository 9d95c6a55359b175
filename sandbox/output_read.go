package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// timestampLayout is RFC 3339 with all nine digits, so that lines stay aligned.
const timestampLayout = "2006-01-02T15:04:05.000000000Z07:00"

// maxTail bounds OutputOptions.Tail.
const maxTail = 1 << 20

// readChunk is how much of a file is read at once.
const readChunk = 64 << 10

// stamper writes lines, each behind the time of its first byte when it has a
// timeline.
type stamper struct {
	w     io.Writer
	times *timeline // nil: no times
	inner bool      // in the middle of a line
	line  []byte
}

// write passes on p, whose byte at index i came at the time when(i) says.
func (s *stamper) write(p []byte, when func(i int) time.Time) error {
	if s.times == nil {
		_, err := s.w.Write(p)
		return err
	}
	out := s.line[:0]
	for i := 0; i < len(p); {
		if !s.inner {
			out = append(when(i).UTC().AppendFormat(out, timestampLayout), ' ')
		}
		end := bytes.IndexByte(p[i:], '\n')
		if s.inner = end < 0; s.inner {
			end = len(p) - i - 1
		}
		out = append(out, p[i:i+end+1]...)
		i += end + 1
		if len(out) >= readChunk {
			if _, err := s.w.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
	}
	s.line = out
	_, err := s.w.Write(out)
	return err
}

// follow copies a stream to w until the spool is closed, or what there is of it
// now.
func (s *spool) follow(ctx context.Context, o OutputOptions, w io.Writer) error {
	out := &stamper{w: w}
	if o.Timestamps {
		out.times = openTimeline(s.index.file.Name())
		defer out.times.close()
	}
	f := &follower{timed: o.Timestamps}
	s.mu.Lock()
	kept := s.kept
	live := o.Follow && !s.released
	if live {
		s.patient = false
		s.followers[f] = struct{}{} // keeps the file open
		s.cond.Broadcast()
	}
	s.mu.Unlock()
	if !live {
		return copyKept(ctx, s.file.Name(), kept, o.Tail, out)
	}
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.gone = true
		s.cond.Broadcast()
	})
	defer stop()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.followers, f)
		s.cond.Broadcast()
	}()
	off := tailOffset(s.file, kept, o.Tail)
	buf := make([]byte, readChunk)
	for {
		s.mu.Lock()
		for off == s.kept && len(f.queue) == 0 && !s.closed && !f.gone {
			s.cond.Wait()
		}
		kept, gone := s.kept, f.gone
		var tail []byte
		var marks []arrival
		if off == kept {
			tail, marks, f.queue, f.marks = f.queue, f.marks, nil, nil
			s.cond.Broadcast()
		}
		done := off == kept && len(tail) == 0
		s.mu.Unlock()
		if gone {
			return ctx.Err()
		}
		if done {
			return nil
		}
		from := off
		when := func(i int) time.Time { return out.times.at(from + int64(i)) }
		if off < kept {
			n, err := s.file.ReadAt(buf[:min(int64(len(buf)), kept-off)], off)
			if n == 0 && err != nil {
				return err
			}
			off += int64(n)
			tail = buf[:n]
		} else if o.Timestamps {
			when = func(i int) time.Time {
				for len(marks) > 1 && marks[1].offset <= int64(i) {
					marks = marks[1:]
				}
				return marks[0].at
			}
		}
		if err := out.write(tail, when); err != nil {
			return err
		}
	}
}

// copyKept copies the first end bytes of the file at path, or their last lines.
// No file is nothing: what was printed is no longer kept, or nothing was.
func copyKept(ctx context.Context, path string, end int64, tail int, out *stamper) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the output cannot be read")
	}
	defer file.Close()
	off := tailOffset(file, end, tail)
	buf := make([]byte, readChunk)
	for off < end && ctx.Err() == nil {
		n, err := file.ReadAt(buf[:min(int64(len(buf)), end-off)], off)
		if n == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := out.write(buf[:n], func(i int) time.Time { return out.times.at(off + int64(i)) }); err != nil {
			return err
		}
		off += int64(n)
	}
	return ctx.Err()
}

// tailOffset is where the last lines of the first size bytes of a file begin.
func tailOffset(file io.ReaderAt, size int64, lines int) int64 {
	if lines <= 0 {
		return 0
	}
	buf := make([]byte, readChunk)
	for end := size; end > 0; {
		start := max(end-readChunk, 0)
		n, err := file.ReadAt(buf[:end-start], start)
		if int64(n) < end-start && err != nil {
			return 0
		}
		for i := n - 1; i >= 0; i-- {
			// A newline that ends the last line begins no other.
			if buf[i] == '\n' && start+int64(i) != size-1 {
				if lines--; lines == 0 {
					return start + int64(i) + 1
				}
			}
		}
		end = start
	}
	return 0
}

// checkStream refuses what selects no output.
func checkStream(st Stream, o OutputOptions) error {
	if st != Stdout && st != Stderr {
		return fault.InvalidField("stream", "%q is not a stream: use stdout or stderr", clip(string(st), 32))
	}
	if o.Tail < 0 || o.Tail > maxTail {
		return fault.InvalidField("tail", "must be 0 to %d lines", maxTail)
	}
	return nil
}

// readOutput copies a stream of an execution or a job of a sandbox.
func (e *Engine) readOutput(ctx context.Context, sandboxID, id string, st Stream, o OutputOptions, w io.Writer) error {
	if run := e.running(id); run != nil {
		return run.spools[st].follow(ctx, o, w)
	}
	path := e.outputPath(sandboxID, id, st)
	info, err := os.Stat(path)
	if err != nil {
		return nil // nothing was printed, or it is no longer kept
	}
	out := &stamper{w: w}
	if o.Timestamps {
		out.times = openTimeline(path + indexSuffix)
		defer out.times.close()
	}
	return copyKept(ctx, path, info.Size(), o.Tail, out)
}
