package auditlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// beat is how often a reader that follows hears that nothing has happened.
const beat = 15 * time.Second

// reader reads one file, line by line.
type reader struct {
	file *os.File
	buf  *bufio.Reader
	line []byte // the beginning of a line whose end is not written yet
}

func newReader(f *os.File) *reader { return &reader{file: f, buf: bufio.NewReaderSize(f, 64<<10)} }

// next returns the next record, or io.EOF when no whole line is left. Lines
// that are none of ours are skipped.
func (r *reader) next() (*sandbox.AuditRecord, error) {
	for {
		part, err := r.buf.ReadSlice('\n')
		if len(r.line)+len(part) <= maxLine {
			r.line = append(r.line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		line := bytes.TrimSpace(r.line)
		r.line = r.line[:0]
		var rec sandbox.AuditRecord
		if len(line) > 0 && json.Unmarshal(line, &rec) == nil && rec.Kind != "" {
			return &rec, nil
		}
	}
}

// ReadAudit implements sandbox.AuditReader.
func (l *Log) ReadAudit(ctx context.Context, q sandbox.AuditQuery, fn func(*sandbox.AuditRecord) error) error {
	r, last, err := l.tail(ctx, q)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the audit log cannot be read: %v", err)
	}
	if r != nil {
		defer func() { r.file.Close() }()
	}
	for _, rec := range last {
		if err := fn(rec); err != nil {
			return err
		}
	}
	if !q.Follow {
		return nil
	}
	if err := fn(nil); err != nil {
		return err
	}
	return l.follow(ctx, &r, q, fn)
}

// tail returns the last records that match and a reader that stands behind
// them, nil if there is no file.
func (l *Log) tail(ctx context.Context, q sandbox.AuditQuery) (*reader, []*sandbox.AuditRecord, error) {
	l.mu.Lock()
	files, err := l.openAll(q.Since)
	l.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	var last []*sandbox.AuditRecord
	for i, f := range files {
		r := newReader(f)
		for err == nil {
			var rec *sandbox.AuditRecord
			if rec, err = r.next(); err == nil && q.Matches(rec) {
				last = append(last, rec)
				if len(last) >= 2*q.Limit {
					last = append(last[:0], last[len(last)-q.Limit:]...)
				}
			}
			if ctx.Err() != nil {
				err = ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err != nil {
			for _, f := range files[i:] {
				f.Close()
			}
			return nil, nil, err
		}
		if i == len(files)-1 {
			return r, last[max(0, len(last)-q.Limit):], nil
		}
		f.Close()
	}
	return nil, nil, nil
}

// openAll opens the files, the oldest first, but for those that were full
// before since.
func (l *Log) openAll(since time.Time) (files []*os.File, err error) {
	for i := l.cfg.Keep; i >= 0; i-- {
		name := l.cfg.Path
		if i > 0 {
			name = l.older(i)
		}
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && i > 0 {
			if info, serr := f.Stat(); serr == nil && info.ModTime().Before(since) {
				f.Close()
				continue
			}
		}
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// follow hands over what is written from now on, over the changes of files.
func (l *Log) follow(ctx context.Context, r **reader, q sandbox.AuditQuery, fn func(*sandbox.AuditRecord) error) error {
	quiet := time.NewTicker(beat)
	defer quiet.Stop()
	for {
		l.mu.Lock()
		changed, closed := l.changed, l.closed
		l.mu.Unlock()
		if err := l.drain(r, q, fn); err != nil {
			return err
		}
		if closed {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			quiet.Reset(beat)
		case <-quiet.C:
			if err := fn(nil); err != nil {
				return err
			}
		}
	}
}

// drain hands over what there is, and goes on with the next file when this one
// is no longer the one that is written.
func (l *Log) drain(r **reader, q sandbox.AuditQuery, fn func(*sandbox.AuditRecord) error) error {
	for {
		if err := (*r).rest(q, fn); err != nil {
			return err
		}
		next, err := l.successor(*r)
		if next == nil || err != nil {
			return err
		}
		// Now that nobody writes to the old one: what came after the last look.
		if err := (*r).rest(q, fn); err != nil {
			next.file.Close()
			return err
		}
		if *r != nil {
			(*r).file.Close()
		}
		*r = next
	}
}

// rest hands over what is left of the file.
func (r *reader) rest(q sandbox.AuditQuery, fn func(*sandbox.AuditRecord) error) error {
	for r != nil {
		rec, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, "the audit log cannot be read: %v", err)
		}
		if q.Matches(rec) {
			if err := fn(rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// successor opens the file that came after the one r reads; nil when that is
// still written. More than one may have come meanwhile: none is left out that
// is still there.
func (l *Log) successor(r *reader) (*reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r != nil && l.file != nil && same(r.file, l.file) {
		return nil, nil
	}
	files, err := l.openAll(time.Time{})
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the audit log cannot be read: %v", err)
	}
	want := 0
	if r != nil {
		want = l.after(r.file, files)
	}
	var next *reader
	for i, f := range files {
		if i == want {
			next = newReader(f)
		} else {
			f.Close()
		}
	}
	return next, nil
}

// after is the index of the file that came after one. When that is among the
// others no more, too old or taken away by somebody, the order in which they
// were written tells: several may have come since.
func (l *Log) after(old *os.File, files []*os.File) int {
	for i, f := range files {
		if same(old, f) {
			return i + 1
		}
	}
	isOld := func(info fs.FileInfo) bool { return sameInfo(old, info) }
	later := l.written[slices.IndexFunc(l.written, isOld)+1:]
	for i, f := range files {
		if slices.ContainsFunc(later, func(info fs.FileInfo) bool { return sameInfo(f, info) }) {
			return i
		}
	}
	return len(files)
}

// same reports whether two files are one.
func same(a, b *os.File) bool {
	y, err := b.Stat()
	return err == nil && sameInfo(a, y)
}

func sameInfo(a *os.File, y fs.FileInfo) bool {
	x, err := a.Stat()
	return err == nil && os.SameFile(x, y)
}
