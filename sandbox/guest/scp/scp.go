// Package scp is the far end of the old scp protocol, what `scp -O` and other
// clients start in a sandbox that has no scp of its own: `scp -t` takes files
// and `scp -f` gives them, as the user that the process runs as. It behaves as
// OpenSSH's does, with -r, -p, -d, -q and -v.
package scp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
)

const usage = `scp: the sandbox has no scp of its own, and this one only answers a scp that
runs elsewhere: use scp there, or install openssh-client here
usage: scp -t [-dprqv] target
       scp -f [-prqv] file ...
`

// maxLine bounds a line of the protocol: a path and two numbers.
const maxLine = 8 << 10

// options are the command line.
type options struct {
	sink, source     bool
	recursive, times bool
	mustBeDirectory  bool
	paths            []string
}

// Run is the program. It may change the umask of the process.
func Run(args []string, in io.Reader, out, errs io.Writer) int {
	o, ok := parse(args)
	if !ok {
		fmt.Fprint(errs, usage)
		return 1
	}
	s := &session{in: bufio.NewReaderSize(in, 64<<10), out: out, options: o}
	var err error
	if o.sink {
		err = s.take(o.paths[0])
	} else {
		err = s.give(o.paths)
	}
	if err != nil && !errors.Is(err, errTold) {
		fmt.Fprintf(errs, "scp: %s\n", printable(err.Error()))
	}
	if err != nil || s.failed {
		return 1
	}
	return 0
}

// parse reads the command line as getopt does. The flags that say nothing to
// this end are taken all the same.
func parse(args []string) (o options, ok bool) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			break
		}
		for _, flag := range arg[1:] {
			switch flag {
			case 't':
				o.sink = true
			case 'f':
				o.source = true
			case 'r':
				o.recursive = true
			case 'p':
				o.times = true
			case 'd':
				o.mustBeDirectory = true
			case 'v', 'q':
			default:
				return o, false
			}
		}
	}
	o.paths = args
	return o, o.sink != o.source && len(args) > 0 && (len(args) == 1 || o.source)
}

// session is one transfer.
type session struct {
	options
	in     *bufio.Reader
	out    io.Writer
	failed bool // an error that did not end the transfer
}

// errTold is an error that the peer knows of.
var errTold = errors.New("told")

// ack says that all is well.
func (s *session) ack() error {
	_, err := s.out.Write([]byte{0})
	return err
}

// tell tells the peer of an error, and goes on.
func (s *session) tell(format string, args ...any) error {
	s.failed = true
	_, err := fmt.Fprintf(s.out, "\x01scp: %s\n", printable(fmt.Sprintf(format, args...)))
	return err
}

// refuse tells the peer of an error that ends the transfer.
func (s *session) refuse(format string, args ...any) error {
	return errors.Join(errTold, s.tell(format, args...))
}

// fails tells the peer that a file cannot be worked on.
func (s *session) fails(path string, err error) error {
	return s.tell("%s: %s", path, reason(err))
}

// response reads what the peer says of the last step. ok is false when it could
// not do it, but goes on.
func (s *session) response() (ok bool, err error) {
	b, err := s.in.ReadByte()
	if err != nil {
		return false, lost(err)
	}
	switch b {
	case 0:
		return true, nil
	case 1, 2:
		if _, err := s.line(); err != nil {
			return false, err
		}
		s.failed = true
		if b == 2 {
			return false, errTold // its own words
		}
		return false, nil
	}
	return false, fmt.Errorf("protocol error: response %q", b)
}

// line reads the rest of a line.
func (s *session) line() (string, error) {
	var b strings.Builder
	for {
		c, err := s.in.ReadByte()
		if err != nil {
			return "", lost(err)
		}
		if c == '\n' {
			return b.String(), nil
		}
		if b.Len() == maxLine {
			return "", s.refuse("protocol error: line too long")
		}
		b.WriteByte(c)
	}
}

func lost(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("lost connection")
	}
	return err
}

// reason is the system's word for an error, as perror has it.
func reason(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return err.Error()
}

// printable takes what moves a cursor, or ends a message, out of a text.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}
