package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// readyEnv names the descriptor on which a server that was started in the
// background says any number of "note LINE", and then once "ready ADDRESS" or
// "error LINE".
const readyEnv = "SANDGATE_READY_FD"

// startLimit is how long a server may take to start in the background.
const startLimit = 60 * time.Second

// ensureServer starts a server in the background when none answers on the
// socket of the folder, as tmux does, and says so once.
func ensureServer(ctx context.Context, d stateDir, stderr io.Writer) error {
	if answers(ctx, d) {
		return nil
	}
	if err := d.prepare(); err != nil {
		return err
	}
	line, err := spawnServer(ctx, d, stderr)
	if err != nil {
		return err
	}
	switch verb, rest, _ := strings.Cut(line, " "); verb {
	case "ready":
		fmt.Fprintf(stderr, "sandgate: started a server in the background (%s); `sandgate stop` ends it\n", rest)
		return nil
	case "error":
		// Another client may have been quicker by a moment.
		if waitAnswer(ctx, d) {
			return nil
		}
		return fault.New(fault.Unavailable, "no server runs and none could be started: %s", rest)
	}
	return fault.New(fault.Unavailable, "no server runs and none could be started; its log is %s", d.serverLog())
}

// answers reports whether a server accepts connections on the socket.
func answers(ctx context.Context, d stateDir) bool {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", d.socket())
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// waitAnswer waits a few seconds for a server that is just starting, if one
// holds the lock of the folder.
func waitAnswer(ctx context.Context, d stateDir) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if answers(ctx, d) {
			return true
		}
		if f, err := d.lock(); err == nil {
			f.Close()
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// spawnServer starts `serve` detached from this process and its terminal, passes
// on what it has to say to a person, and returns the line with which it reports.
func spawnServer(ctx context.Context, d stateDir, stderr io.Writer) (string, error) {
	logFile, err := os.OpenFile(d.serverLog(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return "", d.unusable(err)
	}
	defer logFile.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", "serve", "--state", string(d), "--ssh", "auto")
	cmd.Args[0] = "sandgate"
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(os.Environ(), readyEnv+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return "", fault.Wrap(err, fault.Unavailable, "a server cannot be started: %v", rootCause(err))
	}
	go func() { _ = cmd.Wait() }() // reap it, should it end before this process does
	r.SetReadDeadline(time.Now().Add(startLimit))
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Now()) })
	defer stop()
	said := bufio.NewReader(io.LimitReader(r, 64<<10))
	line, err := said.ReadString('\n')
	for err == nil && strings.HasPrefix(line, "note ") {
		fmt.Fprintln(stderr, "sandgate: "+strings.TrimSpace(strings.TrimPrefix(line, "note ")))
		line, err = said.ReadString('\n')
	}
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "", fault.New(fault.Timeout, "the server did not start within %s; its log is %s", startLimit, d.serverLog())
	}
	return strings.TrimSpace(line), nil
}

// takeReady returns how to answer the process that started this one in the
// background; without one the answer goes nowhere. Call it before anything is
// started, so that no child inherits the descriptor.
func takeReady() *readyPipe {
	fd, err := strconv.Atoi(os.Getenv(readyEnv))
	os.Unsetenv(readyEnv)
	if err != nil || fd < 3 {
		return nil
	}
	unix.CloseOnExec(fd)
	return &readyPipe{os.NewFile(uintptr(fd), "ready")}
}

// readyPipe leads to the process that started this one; nil leads nowhere.
type readyPipe struct{ f *os.File }

// note says something to the person over there.
func (r *readyPipe) note(text string) {
	if r == nil {
		return
	}
	for line := range strings.Lines(text) {
		fmt.Fprintln(r.f, "note", strings.TrimRight(line, "\n"))
	}
}

// report says how the start went and ends the talk.
func (r *readyPipe) report(line string) {
	if r == nil {
		return
	}
	fmt.Fprintln(r.f, strings.ReplaceAll(line, "\n", " "))
	r.f.Close()
}
