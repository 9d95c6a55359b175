// Package auditlog keeps the audit log: one line of JSON for each record, in a
// file that only its owner reads, and in the older files beside it.
//
// A record is written with one call, so a line is whole or not there. Nothing
// is synced to the disk: a crash of the server loses nothing, one of the
// machine may lose the last moments. An error of the disk never stops who
// writes: it is told to the log of the server, and the record is lost.
//
// The file is renamed to FILE.1 when it is full, FILE.1 to FILE.2, and so on;
// the oldest is removed. Somebody else may rename it too: Reopen starts a new
// one then.
package auditlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// Defaults of Config.
const (
	DefaultMaxBytes = 64 << 20
	DefaultKeep     = 4
)

// maxLine bounds one line; the strings of a record are bounded by whoever makes
// it.
const maxLine = 32 << 10

// Config says where the log is. Path is required.
type Config struct {
	Path     string
	MaxBytes int64 // of one file; default 64 MiB
	Keep     int   // older files; default 4
	Log      *slog.Logger
	Now      func() time.Time
}

// Log is an open audit log. It is safe for concurrent use.
type Log struct {
	cfg Config

	mu      sync.Mutex
	file    *os.File // nil when it could not be opened
	size    int64
	closed  bool
	written []fs.FileInfo // the files opened last, in their order, for those that follow
	lost    int           // records since the last complaint
	said    time.Time     // when an error was told last
	changed chan struct{}
}

// Open opens the log, or starts it.
func Open(cfg Config) (*Log, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.Keep == 0 {
		cfg.Keep = DefaultKeep
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Log{cfg: cfg, changed: make(chan struct{})}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return l, nil
}

// Path is where the log is.
func (l *Log) Path() string { return l.cfg.Path }

// open opens the file. The caller holds l.mu, or the log is new.
func (l *Log) open() error {
	f, err := os.OpenFile(l.cfg.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", l.cfg.Path)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = f.Chmod(0o600)
	}
	if err == nil && info.Size() > 0 {
		err = l.mend(f, info.Size())
	}
	if err != nil {
		f.Close()
		return err
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file, l.size = f, info.Size()
	l.remember(info)
	return nil
}

// remember notes which file is written from now on. Of those that are gone a
// few are remembered too: somebody may still read them. One that is the same as
// an earlier one is that file, or has its number because that one is gone.
func (l *Log) remember(info fs.FileInfo) {
	l.written = slices.DeleteFunc(l.written, func(old fs.FileInfo) bool { return os.SameFile(old, info) })
	l.written = append(l.written, info)
	l.written = l.written[max(0, len(l.written)-l.cfg.Keep-2):]
}

// mend ends a last line that a crash has cut, so that the next one is whole.
func (l *Log) mend(f *os.File, size int64) error {
	r, err := os.Open(l.cfg.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	last := make([]byte, 1)
	if _, err := r.ReadAt(last, size-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.Write([]byte{'\n'})
	return err
}

// Reopen opens the file anew: another one, if it was renamed or removed. When
// that fails the old one stays in use.
func (l *Log) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fs.ErrClosed
	}
	if err := l.open(); err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	l.wake()
	return nil
}

// Write appends a record. It does not fail; see the package comment.
func (l *Log) Write(r sandbox.AuditRecord) {
	if r.Time.IsZero() {
		r.Time = l.cfg.Now()
	}
	r.Time = r.Time.UTC().Truncate(time.Millisecond)
	line, err := encode(&r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if err == nil {
		err = l.append(line)
	}
	if err != nil {
		l.complain(err)
		return
	}
	l.wake()
}

// encode makes one line of a record.
func encode(r *sandbox.AuditRecord) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	if b.Len() > maxLine {
		return nil, fmt.Errorf("a record of %d bytes is too long", b.Len())
	}
	return b.Bytes(), nil
}

func (l *Log) append(line []byte) error {
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	if l.size > 0 && l.size+int64(len(line)) > l.cfg.MaxBytes {
		if err := l.rotate(); err != nil {
			l.complain(err) // and write on into the old one
		}
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if err != nil && n > 0 {
		// Half a line must not become the beginning of the next one.
		if terr := l.file.Truncate(l.size - int64(n)); terr == nil {
			l.size -= int64(n)
		}
	}
	return err
}

// rotate renames the files and starts a new one.
func (l *Log) rotate() error {
	for i := l.cfg.Keep - 1; i >= 1; i-- {
		if err := os.Rename(l.older(i), l.older(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(l.cfg.Path, l.older(1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return l.open()
}

// older is the name of the i-th older file.
func (l *Log) older(i int) string { return l.cfg.Path + "." + strconv.Itoa(i) }

// complain tells the log of the server about an error, now and then.
func (l *Log) complain(err error) {
	l.lost++
	if now := l.cfg.Now(); now.Sub(l.said) >= 10*time.Second {
		l.cfg.Log.Error("write the audit log", "file", filepath.Clean(l.cfg.Path), "err", err, "lost", l.lost)
		l.said, l.lost = now, 0
	}
}

// wake tells those that follow. The caller holds l.mu.
func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Close closes the file. What is written afterwards is dropped.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.wake()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
