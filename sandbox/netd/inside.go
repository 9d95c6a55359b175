package netd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// A daemon of a plain user can do nothing with a namespace, and a program in
// Go cannot enter a user namespace. So it runs itself there once more, by way
// of nsenter: [RunInside] makes R beside S, both of the sandbox's user
// namespace, and hands the sockets out. R lives as long as they are open.

// insideFD is where what runs inside finds the way back.
const insideFD = 3

// insideTimeout bounds what happens inside.
const insideTimeout = 15 * time.Second

// needsNsenter says what keeps a plain user from connecting sandboxes.
const needsNsenter = "nsenter is missing (apt-get install util-linux)"

// RunInside is `exe netd --inside`: it runs in S and in the user namespace that
// S belongs to, makes a router, hands it to the daemon, and ends.
func RunInside() error {
	f := os.NewFile(insideFD, "daemon")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("reach the daemon: %w", err)
	}
	defer c.Close()
	back, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("what leads to the daemon is no unix socket")
	}
	r, s, err := insideRouter()
	if err != nil {
		return errors.Join(err, send(back, handedItem{Error: &wireError{fault.Unavailable, "", "the sandbox cannot be connected: " + err.Error()}}))
	}
	defer r.Close()
	defer s.close()
	files := []syscall.Conn{r, s.tcp, s.udp, s.raw}
	if s.log != nil {
		files = append(files, s.log)
	}
	return sendSockets(back, handedItem{Ready: true}, files...)
}

func insideRouter() (*os.File, sockets, error) {
	s, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, sockets{}, err
	}
	defer s.Close()
	r, err := newNamespace()
	if err != nil {
		return nil, sockets{}, err
	}
	err = within(r, installRules)
	if err == nil {
		// What is left of an earlier router went away with it.
		err = connect(s, r)
	}
	var socks sockets
	if err == nil {
		socks, err = listen(r)
	}
	if err != nil {
		r.Close()
		return nil, sockets{}, err
	}
	return r, socks, nil
}

// enter runs this program in S and its user namespace, and returns the router
// that it has made there.
func enter(ctx context.Context, s *os.File) (*os.File, sockets, error) {
	nsenter, err := findNsenter()
	if err != nil {
		return nil, sockets{}, fault.Wrap(err, fault.Unsupported, "%s", needsNsenter)
	}
	fd, err := unix.IoctlRetInt(int(s.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return nil, sockets{}, fault.Wrap(err, fault.Unsupported, "the namespace of the sandbox belongs to another user")
	}
	user := os.NewFile(uintptr(fd), "user namespace")
	defer user.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, sockets{}, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "inside"), os.NewFile(uintptr(pair[1]), "inside")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, sockets{}, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(insideTimeout))

	ctx, cancel := context.WithTimeout(ctx, insideTimeout)
	defer cancel()
	// The user id stays: 0 inside is that of the daemon outside.
	cmd := exec.CommandContext(ctx, nsenter, "--preserve-credentials", "--user=/proc/self/fd/4", "--net=/proc/self/fd/5", "/proc/self/exe", "netd", "--inside")
	// What nsenter calls itself is nsenter: it needs a path.
	if cmd.Args[len(cmd.Args)-3], err = os.Readlink("/proc/self/exe"); err != nil {
		return nil, sockets{}, err
	}
	cmd.ExtraFiles = []*os.File{theirs, user, s}
	var said strings.Builder
	cmd.Stderr = &limitedWriter{w: &said, left: 4096}
	if err := cmd.Start(); err != nil {
		return nil, sockets{}, fmt.Errorf("enter sandbox: %w", err)
	}
	theirs.Close()
	var item handedItem
	files, rerr := receive(c.(*net.UnixConn), &item)
	werr := cmd.Wait()
	if rerr == nil && item.Error != nil {
		rerr = item.Error.fault()
	} else if rerr != nil || !item.Ready || len(files) < 4 {
		rerr = fault.Wrap(errors.Join(rerr, werr), fault.Unavailable, "the sandbox cannot be connected: %s", firstLine(said.String()))
	}
	if rerr != nil {
		closeAll(files)
		return nil, sockets{}, rerr
	}
	socks, err := takeSockets(files[1:])
	if err != nil {
		closeAll(files)
		return nil, sockets{}, err
	}
	return files[0], socks, nil
}

func findNsenter() (string, error) {
	if path, err := exec.LookPath("nsenter"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/bin/nsenter")
}

// firstLine is what a person is shown of an output.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if line == "" {
		return "what was started in it ended without a word"
	}
	return printableLine(line)
}

func printableLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s[:min(len(s), 300)])
}

// limitedWriter drops what is too much.
type limitedWriter struct {
	w    io.Writer
	left int
}

func (l *limitedWriter) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	if _, err := l.w.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}
