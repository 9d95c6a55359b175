package agent

import (
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// input is the standard input of a process. Several attachments may write to
// it; one at a time does, and can be cut off while it is stuck.
type input struct {
	file *os.File
	tty  bool

	turn chan struct{} // holds one token while somebody writes

	mu       sync.Mutex
	writer   *attachment // who has the turn
	enlarged bool
}

func newInput(f *os.File, tty bool) *input {
	return &input{file: f, tty: tty, turn: make(chan struct{}, 1), enlarged: tty}
}

// take waits for the turn of att. It is false when att was detached first.
func (in *input) take(att *attachment) bool {
	select {
	case in.turn <- struct{}{}:
	case <-att.gone:
		return false
	}
	in.mu.Lock()
	in.writer = att
	in.file.SetWriteDeadline(noDeadline)
	in.mu.Unlock()
	if att.isGone() {
		in.give()
		return false
	}
	return true
}

func (in *input) give() {
	in.mu.Lock()
	in.writer = nil
	in.mu.Unlock()
	<-in.turn
}

// release cuts att off if it is writing.
func (in *input) release(att *attachment) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.writer == att {
		in.file.SetWriteDeadline(longAgo)
	}
}

// feed writes the payload of a frame. Input that the process does not take
// any more is dropped; an error means that the stream is at its end.
func (in *input) feed(att *attachment, frame *wire.FrameReader) error {
	if in == nil {
		_, err := io.Copy(io.Discard, frame)
		return err
	}
	buf := wire.Buffer(frame.Left())
	defer buf.Release()
	open := in.take(att)
	if open {
		defer in.give()
	}
	for frame.Left() > 0 {
		n, err := frame.Read(buf.Payload())
		if err != nil {
			return err
		}
		if open {
			in.enlarge(n)
			_, err = in.file.Write(buf.Payload()[:n])
			open = err == nil
		}
	}
	return nil
}

// enlarge makes room in the pipe of a process that gets much input.
func (in *input) enlarge(n int) {
	if n >= bulk && !in.enlarged {
		in.enlarged = true
		_ = control(in.file, func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize)
			return err
		})
	}
}

// end ends the input. A terminal gets its end-of-file character, once for each
// end; it stays open, because closing it would be a hangup.
func (in *input) end(att *attachment) error {
	if in == nil || !in.take(att) {
		return nil
	}
	defer in.give()
	if in.tty {
		in.typeControl(unix.VEOF)
		return nil
	}
	in.file.Close()
	return nil
}

// close ends the input for good, whoever is writing.
func (in *input) close() {
	if !in.tty {
		in.file.Close()
	}
}

// typeSignal types the character that makes the line discipline send sig. It
// is false when there is none, or the terminal does not act on it.
func (in *input) typeSignal(sig syscall.Signal) bool {
	var index int
	switch sig {
	case syscall.SIGINT:
		index = unix.VINTR
	case syscall.SIGQUIT:
		index = unix.VQUIT
	case syscall.SIGTSTP:
		index = unix.VSUSP
	default:
		return false
	}
	acts := false
	_ = control(in.file, func(fd int) error {
		t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil && t.Lflag&unix.ISIG != 0 && t.Cc[index] != 0 {
			// Not through file.Write, which may wait behind a stuck writer.
			n, _ := unix.Write(fd, []byte{t.Cc[index]})
			acts = n == 1
		}
		return err
	})
	return acts
}

// typeControl types one of the terminal's control characters.
func (in *input) typeControl(index int) {
	var char byte
	_ = control(in.file, func(fd int) error {
		t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			char = t.Cc[index]
		}
		return err
	})
	if char != 0 {
		_, _ = in.file.Write([]byte{char}) // a terminal that is gone needs no end
	}
}
