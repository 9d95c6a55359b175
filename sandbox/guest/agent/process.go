package agent

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// process is one process that the agent started, and all it knows of it.
type process struct {
	id, label, title string
	pid              int // 0 when the command did not exist
	started          time.Time
	agent            *Agent
	running          bool     // visible to others; belongs to the agent's lock
	input            *input   // nil when it has no standard input of ours
	master           *os.File // the terminal; nil for pipes
	outputs          []output // what its output is read from

	mu      sync.Mutex
	changed *sync.Cond // anything below has changed
	ring    ring
	// attached is in order of arrival: the first holds the process back, see
	// guest.Hold.
	attached  []*attachment
	discard   bool // standard output is not wanted any more
	collected bool // somebody has taken over the exit
	keep      bool // stays after that until it is forgotten
	hungUp    bool
	ended     bool // dead, and all its output is in the ring
	endedAt   time.Time
	exit      wire.Exit
	kill      *time.Timer // ends the grace period of a hangup
}

// output is one file that output is read from.
type output struct {
	kind wire.Kind
	file *os.File
}

// run pumps the output and waits for the end. It is the process's goroutine,
// and ends with it.
func (p *process) run(exited <-chan syscall.WaitStatus) {
	var pumps sync.WaitGroup
	for _, out := range p.outputs {
		pumps.Go(func() { p.pump(out) })
	}
	status := <-exited
	if p.master != nil {
		// A background job may keep the terminal open for ever. The end of
		// the shell is the end of the session, as with sshd.
		p.master.SetReadDeadline(time.Now().Add(ttyDrain))
	}
	pumps.Wait()
	p.finish(exitOf(status))
}

// ttyDrain is how long the output of a terminal is waited for after the death
// of the process that was started on it.
const ttyDrain = 200 * time.Millisecond

func exitOf(ws syscall.WaitStatus) wire.Exit {
	if ws.Signaled() {
		return wire.Exit{Signal: wire.SignalName(int(ws.Signal())), CoreDumped: ws.CoreDump()}
	}
	return wire.Exit{Code: ws.ExitStatus()}
}

// finish records the end, when all output is in the ring.
func (p *process) finish(exit wire.Exit) {
	if p.input != nil {
		p.input.close()
	}
	if p.master != nil {
		p.master.Close()
	}
	p.mu.Lock()
	exit.Offset = p.ring.headOff
	p.exit = exit
	p.ended = true
	p.endedAt = p.agent.cfg.Now()
	if p.kill != nil && syscall.Kill(-p.pid, 0) == syscall.ESRCH {
		p.kill.Stop() // nothing of the group is left
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	p.agent.sweepNow()
}

// emit puts output into the ring. It waits while those who hold the process back
// have not taken what would have to make room.
func (p *process) emit(kind wire.Kind, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		n := min(len(b), maxFrame)
		for p.heldBack(wire.HeaderSize+n) && !p.dropping(kind) {
			p.changed.Wait()
		}
		if p.dropping(kind) {
			return
		}
		p.ring.put(kind, b[:n], p.mayMerge())
		b = b[n:]
		p.changed.Broadcast()
	}
}

// heldBack reports whether somebody has to take output before there is room for
// n bytes more.
func (p *process) heldBack(n int) bool {
	oldest := true
	for _, att := range p.attached {
		holds := att.hold == guest.HoldAlways
		if att.hold == guest.HoldOldest {
			holds, oldest = oldest, false
		}
		if holds && p.ring.room(att.pos) < n {
			return true
		}
	}
	return false
}

// dropping reports whether output of the kind goes nowhere.
func (p *process) dropping(kind wire.Kind) bool {
	return p.discard && kind == wire.KindStdout
}

// mayMerge reports whether the newest frame has been sent to nobody.
func (p *process) mayMerge() bool {
	for _, att := range p.attached {
		if att.pos > p.ring.last {
			return false
		}
	}
	return true
}

// info is what List tells.
func (p *process) info() guest.Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	return guest.Info{
		ID: p.id, Label: p.label, PID: p.pid, TTY: p.master != nil, Title: p.title,
		Started: p.started, Attached: len(p.attached), Exited: p.ended, Size: p.terminalSize(),
		Exit: guest.Exit{Code: p.exit.Code, Signal: p.exit.Signal, CoreDumped: p.exit.CoreDumped},
	}
}

// resize sets the size of the terminal; 0 leaves a dimension as it is.
func (p *process) resize(size guest.Size) error {
	if p.master == nil {
		return fault.New(fault.State, "process %q has no terminal", p.id)
	}
	err := control(p.master, func(fd int) error { return setSize(fd, size) })
	if errors.Is(err, os.ErrClosed) {
		return p.endedError()
	}
	if err != nil {
		return systemError(err, "set the terminal's size")
	}
	return nil
}

// terminalSize is the size of the terminal, zero when it is not known.
func (p *process) terminalSize() (size guest.Size) {
	if p.master == nil {
		return size
	}
	_ = control(p.master, func(fd int) error { // which fails once it is closed
		ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			size = guest.Size{Rows: ws.Row, Cols: ws.Col}
		}
		return err
	})
	return size
}

func (p *process) endedError() error {
	return fault.New(fault.State, "process %q has ended", p.id)
}

// closeOutput stops reading standard output. The reading end of the pipe is
// closed, so that the process learns of it by SIGPIPE; a terminal has no such
// end, so what comes from it is dropped.
func (p *process) closeOutput() {
	p.mu.Lock()
	p.discard = true
	p.changed.Broadcast()
	p.mu.Unlock()
	for _, out := range p.outputs {
		if out.kind == wire.KindStdout && p.master == nil {
			out.file.Close()
		}
	}
}

// signalName sends a signal: to the foreground group of a terminal, otherwise
// to the group that the process leads, or to all of its session.
func (p *process) signalName(name string, session bool) error {
	sig := syscall.Signal(wire.SignalNumber(name))
	if sig == 0 {
		return fault.InvalidField("signal", "there is no signal %q", wire.Printable(name, 32))
	}
	p.mu.Lock()
	ended := p.ended || p.pid == 0
	p.mu.Unlock()
	if ended {
		return p.endedError()
	}
	group := p.pid
	if p.master != nil {
		foreground := p.foreground()
		switch {
		case foreground > 0:
			group = foreground
		case p.input.typeSignal(sig):
			// This kernel does not tell (gVisor), but its line discipline
			// knows whom Ctrl-C is for.
			return nil
		}
	}
	err := syscall.Kill(-group, sig)
	if session && signalSession(p.pid, group, sig) {
		err = nil
	}
	if err != nil {
		if err == syscall.ESRCH {
			return p.endedError()
		}
		return systemError(err, "send signal "+wire.SignalName(int(sig)))
	}
	return nil
}

// foreground is the foreground process group of the terminal, 0 when it is not
// known.
func (p *process) foreground() int {
	var group int
	err := control(p.master, func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	if err != nil || group <= 1 {
		return 0
	}
	return group
}

// hangup tells the process that its user is gone. What is left of its process
// group after the grace period is killed; what made itself a session of its
// own is not of that group. Output that such a survivor still holds open is
// then no reason to call the process unfinished.
func (p *process) hangup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hungUp || p.ended || p.pid == 0 {
		return
	}
	p.hungUp = true
	p.changed.Broadcast()
	if p.master != nil {
		if group := p.foreground(); group > 0 && group != p.pid {
			hangupGroup(group)
		}
	}
	hangupGroup(p.pid)
	if p.master != nil {
		p.master.Close() // the kernel hangs up the session as well
	}
	p.kill = time.AfterFunc(p.agent.cfg.HangupGrace, func() {
		// The number stays taken while a member of the group lives, and a
		// process of ours that has got it since then is not the culprit.
		if !p.agent.ownsNow(p.pid, p) {
			syscall.Kill(-p.pid, syscall.SIGKILL)
		}
		for _, out := range p.outputs {
			out.file.Close()
		}
	})
}

// hangupGroup also continues the group: a stopped process cannot act on SIGHUP.
func hangupGroup(group int) {
	syscall.Kill(-group, syscall.SIGHUP)
	syscall.Kill(-group, syscall.SIGCONT)
}

// control runs do with the descriptor of f while f cannot be closed.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := raw.Control(func(fd uintptr) { result = do(int(fd)) }); err != nil {
		return err
	}
	return result
}
