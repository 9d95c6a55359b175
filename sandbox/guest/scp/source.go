package scp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxDepth bounds how deep directories are sent.
const maxDepth = 1000

// give sends files.
func (s *session) give(paths []string) error {
	if _, err := s.response(); err != nil {
		return err
	}
	for _, path := range paths {
		for len(path) > 1 && strings.HasSuffix(path, "/") {
			path = path[:len(path)-1]
		}
		if err := s.giveOne(path, 0); err != nil {
			return err
		}
	}
	return nil
}

// giveOne sends a file or a directory. An error means that nothing more can be
// sent.
func (s *session) giveOne(path string, depth int) error {
	// Opening a pipe must not wait for who writes to it.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return s.fails(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s.fails(path, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return s.fails(path, errors.ErrUnsupported)
	case info.IsDir() && s.recursive:
		return s.giveDirectory(f, st, path, depth)
	case !info.Mode().IsRegular():
		return s.tell("%s: not a regular file", path)
	}
	ok, err = s.announce('C', st, info.Size(), path)
	if !ok || err != nil {
		return err
	}
	return s.giveContent(f, info.Size(), path)
}

// announce sends the times, if they are wanted, and the line of a file or a
// directory, and reports whether the peer takes it.
func (s *session) announce(kind byte, st *syscall.Stat_t, size int64, path string) (bool, error) {
	if s.times {
		changed, access := max(st.Mtim.Sec, 0), max(st.Atim.Sec, 0)
		if _, err := fmt.Fprintf(s.out, "T%d 0 %d 0\n", changed, access); err != nil {
			return false, err
		}
		if ok, err := s.response(); !ok || err != nil {
			return false, err
		}
	}
	// A line ends with the name; one with a newline in it is told as ls -b does.
	name := strings.ReplaceAll(filepath.Base(path), "\n", `\n`)
	if _, err := fmt.Fprintf(s.out, "%c%04o %d %s\n", kind, st.Mode&modeMask, size, name); err != nil {
		return false, err
	}
	return s.response()
}

// giveContent sends as many bytes as were announced. What cannot be read is sent
// as zeros, and told.
func (s *session) giveContent(f *os.File, size int64, path string) error {
	var problem error
	buf := make([]byte, min(size, chunk))
	for size > 0 {
		part := buf[:min(size, chunk)]
		if problem != nil {
			clear(part)
		} else if n, err := io.ReadFull(f, part); err != nil {
			clear(part[n:])
			if problem = err; err == io.EOF || err == io.ErrUnexpectedEOF {
				problem = errors.New("file became shorter")
			}
		}
		if _, err := s.out.Write(part); err != nil {
			return err
		}
		size -= int64(len(part))
	}
	end := s.ack
	if problem != nil {
		end = func() error { return s.fails(path, problem) }
	}
	if err := end(); err != nil {
		return err
	}
	_, err := s.response()
	return err
}

// entriesAtOnce bounds how much of a directory is held.
const entriesAtOnce = 256

func (s *session) giveDirectory(dir *os.File, st *syscall.Stat_t, path string, depth int) error {
	if depth == maxDepth {
		return s.tell("%s: directories are nested too deeply", path)
	}
	ok, err := s.announce('D', st, 0, path)
	if !ok || err != nil {
		return err
	}
	for {
		names, err := dir.Readdirnames(entriesAtOnce)
		for _, name := range names {
			if err := s.giveOne(filepath.Join(path, name), depth+1); err != nil {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			if err := s.fails(path, err); err != nil {
				return err
			}
			break
		}
	}
	if _, err := io.WriteString(s.out, "E\n"); err != nil {
		return err
	}
	_, err = s.response()
	return err
}
