package agent

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/screenmode"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// start starts a process with att attached to it from its first byte on.
func (a *Agent) start(cmd guest.Command, att *attachment) (*process, error) {
	if err := check(cmd); err != nil {
		return nil, err
	}
	p := &process{id: cmd.ID, label: cmd.Label, title: title(cmd), agent: a, started: a.cfg.Now(), keep: cmd.Keep}
	p.changed = sync.NewCond(&p.mu)
	if err := a.claim(p); err != nil {
		return nil, err
	}
	if err := a.launch(p, cmd, att); err != nil {
		a.drop(p)
		return nil, err
	}
	return p, nil
}

// launch does what a start consists of. On error nothing is left of it.
func (a *Agent) launch(p *process, cmd guest.Command, att *attachment) error {
	who, err := a.lookupUser(cmd.User)
	if err != nil {
		return err
	}
	dir, err := a.directory(cmd.Dir)
	if err != nil {
		return err
	}
	shell, noShell := loginShell(who.shell)
	who.shell = shell
	env := a.environment(who, cmd)
	what, problem := image{path: shell}, noShell
	if cmd.Builtin != "" {
		what, problem = a.builtinImage(cmd)
	} else if len(cmd.Args) > 0 {
		what, problem = lookPath(cmd.Args, variable(env, "PATH"), dir)
	} else {
		what.argv = shellArgs(shell, cmd.Script)
	}
	if problem == nil {
		err := a.fork(p, cmd, what, who, env, dir, att)
		if problem = cannotRun(err, what.argv[0]); problem == nil {
			if fe, ok := errors.AsType[*forkError](err); ok {
				return systemError(fe.err, "start "+wire.Printable(what.argv[0], 256))
			}
			return err
		}
	}
	// What a shell says of a command that it cannot run is not an error of
	// the request: the process "ran", and this is how it ended.
	p.attach(att, 0)
	newline, kind := "\n", wire.KindStderr
	if cmd.TTY != nil {
		newline, kind = "\r\n", wire.KindStdout
	}
	p.ring.put(kind, []byte("sandgate: "+problem.text+newline), false)
	a.begun(p)
	p.finish(wire.Exit{Code: problem.code})
	return nil
}

// begun makes a process visible. It is false when the sandbox has begun to shut
// down meanwhile.
func (a *Agent) begun(p *process) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.running = true
	return !a.closed
}

// fork starts the program with its pipes or its terminal.
func (a *Agent) fork(p *process, cmd guest.Command, what image, who user, env []string, dir string, att *attachment) (err error) {
	var child []int // what the child gets as 0, 1, 2; closed here in any case
	defer func() {
		for _, fd := range child {
			unix.Close(fd)
		}
		if err != nil {
			p.abandon()
		}
	}()
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Sys: &syscall.SysProcAttr{Setsid: true, Credential: who.credential()}}
	if cmd.TTY != nil {
		child, err = p.openTerminal(*cmd.TTY, who)
		if err != nil {
			return err
		}
		attr.Sys.Setctty = true // of descriptor 0
		attr.Files = []uintptr{uintptr(child[0]), uintptr(child[0]), uintptr(child[0])}
	} else {
		child, err = p.openPipes(cmd.NoStdin)
		if err != nil {
			return err
		}
		attr.Files = []uintptr{uintptr(child[0]), uintptr(child[1]), uintptr(child[2])}
	}
	pid, exited, err := a.reaper.start(func() (int, error) { return syscall.ForkExec(what.path, what.argv, attr) })
	if err != nil {
		if errors.Is(err, syscall.EPERM) && who.switches() {
			return fault.Wrap(err, fault.Unsupported, "this sandbox is not allowed to switch to user %q; leave the user out", who.name)
		}
		return &forkError{err, dir, who}
	}
	p.pid = pid
	p.attach(att, 0)
	go p.run(exited)
	if !a.begun(p) {
		syscall.Kill(-pid, syscall.SIGKILL)
	}
	return nil
}

// abandon closes what was opened for a process that did not start.
func (p *process) abandon() {
	if p.input != nil {
		p.input.file.Close()
	}
	for _, out := range p.outputs {
		out.file.Close()
	}
	p.input, p.outputs, p.master = nil, nil, nil
}

// openPipes opens pipes for the standard streams and returns the child's ends.
func (p *process) openPipes(noStdin bool) (child []int, err error) {
	pipe := func(ours int) (*os.File, error) {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return nil, systemError(err, "open a pipe")
		}
		child = append(child, fds[1-ours])
		if err := unix.SetNonblock(fds[ours], true); err != nil { // ours waits in the poller
			unix.Close(fds[ours])
			return nil, systemError(err, "open a pipe")
		}
		return os.NewFile(uintptr(fds[ours]), "pipe"), nil
	}
	if noStdin {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return child, systemError(err, "open "+os.DevNull)
		}
		child = append(child, fd)
	} else {
		f, err := pipe(1)
		if err != nil {
			return child, err
		}
		p.input = newInput(f, false)
	}
	for _, kind := range []wire.Kind{wire.KindStdout, wire.KindStderr} {
		f, err := pipe(0)
		if err != nil {
			return child, err
		}
		p.outputs = append(p.outputs, output{kind, f})
	}
	return child, nil
}

// openTerminal opens a terminal and returns the child's end.
func (p *process) openTerminal(tty guest.TTY, who user) (child []int, err error) {
	master, slave, err := openPTY(who)
	if err != nil {
		return nil, err
	}
	p.master = master
	p.ring.lost = new(screenmode.Scanner)
	p.input = newInput(master, true)
	p.outputs = []output{{wire.KindStdout, master}}
	size := tty.Size
	if size.Rows == 0 {
		size.Rows = 24
	}
	if size.Cols == 0 {
		size.Cols = 80
	}
	if err := setModes(slave, tty.Modes); err != nil {
		return []int{slave}, systemError(err, "set the terminal's modes")
	}
	if err := setSize(slave, size); err != nil {
		return []int{slave}, systemError(err, "set the terminal's size")
	}
	return []int{slave}, nil
}

// forkError is what the system said to an attempt to run a program.
type forkError struct {
	err error
	dir string
	who user
}

func (e *forkError) Error() string { return e.err.Error() }
func (e *forkError) Unwrap() error { return e.err }

// cannotRun tells whether an error of fork is about the program, and then what
// a shell would make of it. The program had been found before.
func cannotRun(err error, name string) *unrunnable {
	fe, ok := errors.AsType[*forkError](err)
	if !ok {
		return nil
	}
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return &unrunnable{127, fmt.Sprintf("%s: its interpreter or loader was not found", name)}
	case errors.Is(err, syscall.EACCES):
		if !fe.who.mayEnter(fe.dir) {
			return &unrunnable{126, fmt.Sprintf("working directory %s: permission denied for user %s", fe.dir, fe.who.name)}
		}
		return &unrunnable{126, name + ": permission denied"}
	case errors.Is(err, syscall.ENOEXEC):
		return &unrunnable{126, name + ": not an executable format"}
	case errors.Is(err, syscall.E2BIG):
		return &unrunnable{126, name + ": argument list too long"}
	case errors.Is(err, syscall.ETXTBSY), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ELIBBAD):
		return &unrunnable{126, name + ": " + fe.err.Error()}
	}
	return nil
}
