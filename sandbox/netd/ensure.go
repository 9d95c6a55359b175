package netd

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// ReadyFD is the descriptor on which a daemon that [Ensure] has started says
// "ready", or "error" and why, in one line.
const ReadyFD = 3

// startLimit is how long a daemon may take to start.
const startLimit = 30 * time.Second

// maxLog is the size from which the log of the daemon is begun anew.
const maxLog = 8 << 20

// Ensure returns a client for the daemon of dir. Where none answers it starts
// one, and where one of another build does, one that takes its place together
// with all connections. The client starts one again should it ever go away.
//
// exe is run as `exe netd --dir DIR [--takeover] args…`, in a session of its
// own, and is expected to call [Run] and to report on [ReadyFD].
func Ensure(ctx context.Context, dir, exe string, args ...string) (*Client, error) {
	d := folder(dir)
	if err := d.prepare(); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the folder %s of the network daemon cannot be used", dir)
	}
	start := func(ctx context.Context) error { return ensure(ctx, d, exe, args) }
	if err := start(ctx); err != nil {
		return nil, err
	}
	return &Client{dir: d, start: start}, nil
}

func ensure(ctx context.Context, d folder, exe string, args []string) error {
	// One at a time: of two that start a daemon, one would be told that the
	// other was quicker.
	lock, err := lockFile(ctx, filepath.Join(string(d), "starting"))
	if err != nil {
		return err
	}
	defer lock.Close()
	info, err := NewClient(string(d)).Ping(ctx)
	switch {
	case err == nil && info.Build == buildID(exe):
		return nil
	case err == nil:
		return spawn(ctx, d, exe, append([]string{"--takeover"}, args...))
	case errors.Is(err, errNobody):
		return spawn(ctx, d, exe, args)
	}
	return err
}

// lockFile waits for a lock.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "%s cannot be locked", path)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fault.Wrap(err, fault.Unavailable, "%s cannot be locked", path)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fault.From(ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// spawn starts a daemon and waits until it answers.
func spawn(ctx context.Context, d folder, exe string, args []string) error {
	log, err := openLog(d.logFile())
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the log of the network daemon cannot be written")
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command(exe, append([]string{"netd", "--dir", string(d)}, args...)...)
	cmd.Args[0] = "sandgate" // /proc/self/exe says nothing in a list of processes
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the network daemon cannot be started")
	}
	go func() { _ = cmd.Wait() }() // reap it, should it end before this process does
	r.SetReadDeadline(time.Now().Add(startLimit))
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(past) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch {
	case word == "ready":
		return nil
	case word == "error":
		return fault.New(fault.Unavailable, "the network daemon cannot start: %s", rest)
	case ctx.Err() != nil:
		return fault.From(ctx.Err())
	}
	return fault.Wrap(err, fault.Unavailable, "the network daemon did not start; its log is %s", d.logFile())
}

func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
}

// Report tells the process that started this one how it went; nil is ready.
// Where nobody waits, nobody is told.
func Report(err error) {
	var st unix.Stat_t
	if unix.Fstat(ReadyFD, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return
	}
	f := os.NewFile(ReadyFD, "ready")
	defer f.Close()
	if err == nil {
		fmt.Fprintln(f, "ready")
		return
	}
	fmt.Fprintln(f, "error", strings.ReplaceAll(fault.From(err).Error(), "\n", " "))
}

// buildID identifies the program at path: by what the linker wrote into it, or
// else by its size and time.
func buildID(path string) string {
	if f, err := elf.Open(path); err == nil {
		defer f.Close()
		if s := f.Section(".note.go.buildid"); s != nil {
			if note, err := s.Data(); err == nil && len(note) > 16 && s.Size < 4096 {
				return strings.TrimRight(string(note[16:]), "\x00")
			}
		}
		if s := f.Section(".note.gnu.build-id"); s != nil {
			if note, err := s.Data(); err == nil {
				return hex.EncodeToString(note)
			}
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano())
}
