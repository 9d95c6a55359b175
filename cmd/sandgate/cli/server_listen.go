package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/user"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// listen opens the listeners. The unix socket is taken over from a server that
// has died: the lock on the folder says that none lives.
func (s *server) listen() error {
	path := s.cfg.state.socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return s.cfg.state.unusable(err)
	}
	// The folder is 0700; the socket itself is closed to others too.
	old := unix.Umask(0o177)
	ln, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return s.cfg.state.unusable(err)
	}
	s.socket = ln
	s.closers = append(s.closers, ln)
	if s.cfg.ssh == "auto" {
		if s.sshLn, err = s.listenTCP("--ssh", defaultSSH); err != nil {
			s.sshLn, err = s.listenTCP("--ssh", "127.0.0.1:0")
		}
	} else {
		s.sshLn, err = s.listenTCP("--ssh", s.cfg.ssh)
	}
	if err != nil {
		return err
	}
	s.httpLn, err = s.listenTCP("--http", s.cfg.http)
	return err
}

func (s *server) listenTCP(flag, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		switch {
		case errors.Is(err, unix.EADDRINUSE):
			return nil, fault.Wrap(err, fault.Unavailable, "%s %s: the port is in use; choose another", flag, address)
		case errors.Is(err, unix.EACCES):
			return nil, fault.Wrap(err, fault.Unavailable, "%s %s: this user may not use that port; choose one above 1023", flag, address)
		case errors.Is(err, unix.EADDRNOTAVAIL):
			return nil, fault.Wrap(err, fault.Unavailable, "%s %s: this machine does not have that address", flag, address)
		}
		return nil, fault.Wrap(err, fault.Invalid, "%s: %q is not an address to listen on (host:port)", flag, address)
	}
	s.closers = append(s.closers, ln)
	return ln, nil
}

// operator is who the unix socket's callers are: the user that started the
// server, by login name, as admin.
func operator() keys.Principal {
	p := keys.Principal{ID: "local", Role: keys.Admin, Door: "socket"}
	if u, err := user.Current(); err == nil && keys.ValidPrincipal(strings.ToLower(u.Username)) {
		p.ID = strings.ToLower(u.Username)
	}
	return p
}

// peerKey is the context key for the credentials of a unix socket's caller.
type peerKey struct{}

// withPeer notes the credentials of a caller when its connection is accepted.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	err = raw.Control(func(fd uintptr) {
		cred, _ = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || cred == nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, *cred)
}

// socketPrincipal lets in who runs the server, and root, over the unix socket.
func (s *server) socketPrincipal(r *http.Request) (keys.Principal, error) {
	cred, ok := r.Context().Value(peerKey{}).(unix.Ucred)
	if !ok || (cred.Uid != 0 && int(cred.Uid) != os.Geteuid()) {
		return keys.Principal{}, fault.New(fault.Denied, "this socket is for the user that runs the server")
	}
	return s.operator, nil
}

// bearerPrincipal lets in who holds an API key.
func (s *server) bearerPrincipal(r *http.Request) (keys.Principal, error) {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || secret == "" {
		return keys.Principal{}, fault.New(fault.Denied, "an API key is needed (Authorization: Bearer sgk_…); make one with `sandgate key api create`")
	}
	return s.engine.AuthenticateSecret(r.Context(), secret, "http")
}

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) }
