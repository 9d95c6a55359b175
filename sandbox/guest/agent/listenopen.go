package agent

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// openListener opens a listening socket as its user.
func (a *Agent) openListener(args wire.Listen) (l *listener, err error) {
	if len(args.User) > wire.MaxUserName {
		return nil, fault.InvalidField("user", "at most %d bytes are allowed", wire.MaxUserName)
	}
	if len(args.Address) > wire.MaxAddress {
		return nil, fault.InvalidField("address", "at most %d bytes are allowed", wire.MaxAddress)
	}
	as, err := a.identity(args.User)
	if err != nil {
		return nil, err
	}
	if args.Address == "" {
		if err := a.makeRuntime(); err != nil {
			return nil, listenError(err, "")
		}
	}
	var open func() error
	switch args.Network {
	case "tcp":
		open = func() (err error) { l, err = listenTCP(args.Address); return err }
	case "unix":
		open = func() (err error) { l, err = a.listenUnix(args, as); return err }
	default:
		return nil, fault.InvalidField("network", `must be "tcp" or "unix"`)
	}
	if err := as(open); err != nil {
		return nil, listenError(err, args.Address)
	}
	return l, nil
}

// listenTCP listens on host:port. "localhost" means both of its addresses, as
// it does to those who connect to it.
func listenTCP(address string) (*listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fault.InvalidField("address", "%s is not host:port", wire.Printable(address, 256))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return nil, fault.InvalidField("address", "%s is not a port from 0 to 65535", wire.Printable(port, 64))
	}
	listen := func(host, port string) (net.Listener, error) {
		return new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, port))
	}
	switch {
	case host == "*":
		host = ""
	case strings.EqualFold(host, "localhost"):
		first, err := listen("127.0.0.1", port)
		if err != nil {
			return nil, err
		}
		_, port, _ = net.SplitHostPort(first.Addr().String())
		if second, err := listen("::1", port); err == nil {
			return newListener(first.Addr().String(), first, second), nil
		}
		return newListener(first.Addr().String(), first), nil
	}
	socket, err := listen(host, port)
	if err != nil {
		return nil, err
	}
	return newListener(socket.Addr().String(), socket), nil
}

// listenUnix listens on a path. What it makes is removed again by the user, and
// only if it still is what was made.
func (a *Agent) listenUnix(args wire.Listen, as identity) (*listener, error) {
	path, dir := args.Address, ""
	var err error
	if path == "" {
		if dir, err = os.MkdirTemp(a.privateSockets(), "s"); err != nil {
			return nil, err
		}
		path = filepath.Join(dir, "socket")
	} else {
		if !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl) {
			return nil, fault.InvalidField("address", "a path of a socket has no control characters")
		}
		path = a.resolve(path)
	}
	socket, err := bindUnix(path)
	if errors.Is(err, unix.EADDRINUSE) && args.Replace && isSocket(path) {
		if err = os.Remove(path); err == nil || errors.Is(err, fs.ErrNotExist) {
			socket, err = bindUnix(path)
		}
	}
	var made os.FileInfo
	if err == nil {
		made, err = os.Lstat(path)
	}
	if err != nil {
		if socket != nil {
			socket.Close()
		}
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
		return nil, err
	}
	l := newListener(path, socket)
	l.remove = func() {
		_ = as(func() error {
			if now, err := os.Lstat(path); err == nil && os.SameFile(now, made) {
				_ = os.Remove(path)
			}
			if dir != "" {
				_ = os.RemoveAll(dir)
			}
			return nil
		})
	}
	return l, nil
}

// bindUnix binds a socket to which nobody but its owner can connect, from the
// first moment on.
func bindUnix(path string) (*net.UnixListener, error) {
	if len(path) > wire.MaxSocket {
		return nil, fault.InvalidField("address", "the path of a socket has at most %d bytes, this one has %d", wire.MaxSocket, len(path))
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		// The file gets the mode of the socket, less the umask. A kernel
		// without that leaves the umask, which keeps others from writing too.
		return raw.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) })
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	socket := l.(*net.UnixListener)
	socket.SetUnlinkOnClose(false) // the path may be another's by then
	return socket, nil
}

func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

func listenError(err error, address string) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	doing := "listen on a private socket inside the sandbox"
	if address != "" {
		doing = "listen on " + wire.Printable(address, 256) + " inside the sandbox"
	}
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fault.Wrap(err, fault.Busy, "%s: %s", doing, reason(err))
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fault.Wrap(err, fault.Unavailable, "%s: %s", doing, reason(err))
	case errors.As(err, &dns):
		return fault.Wrap(err, fault.Unavailable, "%s: no such host", doing)
	}
	return systemError(err, doing)
}
