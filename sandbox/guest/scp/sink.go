package scp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The bits of a mode that are passed on.
const modeMask = 0o6777

// chunk is how much is read and written at once.
const chunk = 256 << 10

// stamp is the times of the file that comes next.
type stamp struct {
	set             bool
	changed, access time.Time
}

// take receives files into target.
func (s *session) take(target string) error {
	if s.mustBeDirectory {
		if info, err := os.Stat(target); err != nil || !info.IsDir() {
			if err == nil {
				err = syscall.ENOTDIR
			}
			return errors.Join(errTold, s.fails(target, err))
		}
	}
	umask := syscall.Umask(0)
	if !s.times {
		syscall.Umask(umask)
	}
	return s.directory(target, fs.FileMode(umask))
}

// directory receives what comes until the end of a directory, or of all. What
// the peer sends leaves nothing but in target: every name is one component.
func (s *session) directory(target string, umask fs.FileMode) error {
	if err := s.ack(); err != nil {
		return err
	}
	info, err := os.Stat(target)
	isDir := err == nil && info.IsDir()
	var times stamp
	for first := true; ; first = false {
		kind, err := s.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if kind == '\n' {
			return s.refuse("protocol error: unexpected <newline>")
		}
		text, err := s.line()
		if err != nil {
			return err
		}
		switch {
		case kind == 1 || kind == 2:
			s.failed = true
			if kind == 2 {
				return errTold
			}
			continue
		case kind == 'E':
			return s.ack()
		case kind == 'T':
			if times, err = parseTimes(text); err != nil {
				return s.refuse("protocol error: %v", err)
			}
			if err := s.ack(); err != nil {
				return err
			}
			continue
		case kind != 'C' && kind != 'D':
			if first { // what a shell says of a command that it does not know, most often
				return s.refuse("%s%s", string(rune(kind)), text)
			}
			return s.refuse("protocol error: expected control record")
		}
		mode, size, name, err := parseEntry(text)
		if err != nil {
			return s.refuse("protocol error: %v", err)
		}
		path := target
		if isDir {
			path = filepath.Join(target, name)
		}
		if kind == 'D' {
			err = s.subdirectory(path, mode, umask, times)
		} else {
			err = s.file(path, mode, size, umask, times)
		}
		if err != nil {
			return err
		}
		times = stamp{}
	}
}

// subdirectory receives a directory.
func (s *session) subdirectory(path string, mode, umask fs.FileMode, times stamp) error {
	if !s.recursive {
		return s.refuse("protocol error: received directory without -r")
	}
	made := false
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return s.fails(path, syscall.ENOTDIR)
	case err == nil && s.times:
		_ = syscall.Chmod(path, uint32(mode))
	case err != nil:
		if err := syscall.Mkdir(path, uint32(mode)|0o700); err != nil {
			return s.fails(path, err)
		}
		made = true
	}
	if err := s.directory(path, umask); err != nil {
		return err
	}
	if times.set {
		if err := os.Chtimes(path, times.access, times.changed); err != nil {
			if err := s.tell("%s: set times: %s", path, reason(err)); err != nil {
				return err
			}
		}
	}
	if made {
		if !s.times {
			mode &^= umask
		}
		_ = syscall.Chmod(path, uint32(mode))
	}
	return nil
}

// file receives a file. What cannot be written is read all the same, so that
// the next one can come.
func (s *session) file(path string, mode fs.FileMode, size int64, umask fs.FileMode, times stamp) error {
	_, err := os.Stat(path)
	existed := err == nil
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_CLOEXEC, uint32(mode)|0o200)
	for errors.Is(err, syscall.EINTR) {
		fd, err = syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_CLOEXEC, uint32(mode)|0o200)
	}
	if err != nil {
		return s.fails(path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := s.ack(); err != nil {
		return err
	}
	problem, err := s.content(f, size)
	if err != nil {
		return err
	}
	if info, err := f.Stat(); problem == nil && err == nil && info.Mode().IsRegular() {
		problem = f.Truncate(size)
	}
	switch {
	case problem != nil:
	case s.times && (existed || mode&0o200 == 0):
		problem = syscall.Fchmod(fd, uint32(mode))
	case !s.times && !existed && mode&0o200 == 0:
		problem = syscall.Fchmod(fd, uint32(mode&^umask))
	}
	ok, err := s.response()
	if err != nil {
		return err
	}
	if problem == nil && times.set {
		problem = os.Chtimes(path, times.access, times.changed)
	}
	if problem == nil {
		problem = f.Close()
	}
	if problem != nil {
		return s.fails(path, problem)
	}
	if !ok {
		s.failed = true
	}
	return s.ack()
}

// content receives the bytes of a file, also those that cannot be written, so
// that the next file can come.
func (s *session) content(f *os.File, size int64) (problem, err error) {
	buf := make([]byte, min(size, chunk))
	for size > 0 {
		n, err := s.in.Read(buf[:min(size, chunk)])
		if n > 0 && problem == nil {
			_, problem = f.Write(buf[:n])
		}
		size -= int64(n)
		if err != nil && size > 0 {
			return problem, lost(err)
		}
	}
	return problem, nil
}

// parseTimes reads the changing and the access time, in seconds and
// microseconds.
func parseTimes(text string) (stamp, error) {
	fields := strings.Split(text, " ")
	if len(fields) != 4 {
		return stamp{}, errors.New("times not delimited")
	}
	var v [4]int64
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || n < 0 || i%2 == 1 && n > 999_999 || n > 1<<40 {
			return stamp{}, errors.New("times out of range")
		}
		v[i] = n
	}
	return stamp{true, time.Unix(v[0], v[1]*1000), time.Unix(v[2], v[3]*1000)}, nil
}

// parseEntry reads the mode, the size and the name of a file or directory.
func parseEntry(text string) (mode fs.FileMode, size int64, name string, err error) {
	octal, rest, ok := strings.Cut(text, " ")
	bits, merr := strconv.ParseUint(octal, 8, 16)
	if !ok || merr != nil || len(octal) != 4 {
		return 0, 0, "", errors.New("bad mode")
	}
	digits, name, ok := strings.Cut(rest, " ")
	size, serr := strconv.ParseInt(digits, 10, 64)
	if !ok || serr != nil || size < 0 {
		return 0, 0, "", errors.New("size not delimited")
	}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return 0, 0, "", fmt.Errorf("unexpected filename: %s", name)
	}
	return fs.FileMode(bits & modeMask), size, name, nil
}
