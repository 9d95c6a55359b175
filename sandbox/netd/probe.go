package netd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probeTimeout bounds one attempt to reach anything in a probe.
const probeTimeout = 2 * time.Second

// Probe finds out by trying whether this process can connect sandboxes here:
// it makes a pair of namespaces, joins them, installs the rules, and sends a
// connection and a packet through them. Nothing is left behind. reason says
// what is missing, and what would help. A plain user needs a program that runs
// [RunProbe] when it is run as `exe netd --probe`, which this one has to be.
func Probe(ctx context.Context) (ok bool, reason string) {
	if os.Geteuid() != 0 {
		return probeUser(ctx)
	}
	if err := RunProbe(ctx); err != nil {
		return false, err.Error()
	}
	return true, "every connection is judged by the name it is for"
}

// probeUser runs the probe in a user namespace.
func probeUser(ctx context.Context) (ok bool, reason string) {
	if _, err := findNsenter(); err != nil {
		return false, needsNsenter
	}
	ctx, cancel := context.WithTimeout(ctx, insideTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "netd", "--probe")
	cmd.Args[0] = "sandgate"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	var said strings.Builder
	cmd.Stderr = &limitedWriter{w: &said, left: 4096}
	err := cmd.Run()
	switch {
	case err == nil:
		return true, "every connection is judged by the name it is for; when the network daemon dies, sandboxes have to be started again"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EACCES):
		return false, "user namespaces are not available to plain users: " + userNamespaceHint()
	}
	return false, firstLine(said.String())
}

// userNamespaceHint names the setting that is most likely in the way.
func userNamespaceHint() string {
	for _, s := range []struct{ name, bad string }{
		{"kernel.unprivileged_userns_clone", "0"}, {"user.max_user_namespaces", "0"}, {"user.max_net_namespaces", "0"}, {"kernel.apparmor_restrict_unprivileged_userns", "1"},
	} {
		b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(s.name, ".", "/"))
		if err == nil && strings.TrimSpace(string(b)) == s.bad {
			return "sysctl " + s.name + " is " + s.bad
		}
	}
	return "see sysctl user.max_user_namespaces, or run sandgate on the host and not in a container"
}

// RunProbe is `exe netd --probe`: it tries as whoever it is.
func RunProbe(ctx context.Context) error {
	s, err := newNamespace()
	if err != nil {
		return explain(err, "network namespaces cannot be made", "run sandgate on the host and not in a container")
	}
	defer s.Close()
	r, err := newNamespace()
	if err != nil {
		return explain(err, "network namespaces cannot be made", "")
	}
	defer r.Close()
	if err := within(r, installRules); err != nil {
		return explain(err, "the rules cannot be installed", "modprobe nft_tproxy nft_reject_inet nft_log nft_limit nfnetlink_log")
	}
	if err := connect(s, r); err != nil {
		return explain(err, "interfaces cannot be made", "modprobe veth")
	}
	socks, err := listen(r)
	if err != nil {
		return explain(err, "transparent sockets cannot be opened", "")
	}
	defer socks.close()
	deadline := time.Now().Add(probeTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := probeTCP(s, socks.tcp, deadline); err != nil {
		return explain(err, "connections of a sandbox do not arrive", "modprobe nft_tproxy")
	}
	if err := probeUDP(s, socks, deadline); err != nil {
		return explain(err, "packets of a sandbox do not arrive", "modprobe nft_tproxy")
	}
	return nil
}

// explain puts what a person can do before the cause.
func explain(err error, what, help string) error {
	if errors.Is(err, unix.EPERM) && help == "" {
		help = "run sandgate on the host and not in a container"
	}
	if help != "" && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EPERM) || errors.Is(err, os.ErrDeadlineExceeded)) {
		return fmt.Errorf("%s (%s); try: %s", what, strings.TrimSpace(err.Error()), help)
	}
	return fmt.Errorf("%s (%w)", what, err)
}

// somewhere is an address for documentation: nothing of it ever leaves.
var somewhere = netip.MustParseAddrPort("192.0.2.7:777")

func probeTCP(s *os.File, l *net.TCPListener, deadline time.Time) error {
	l.SetDeadline(deadline)
	arrived := make(chan error, 1)
	go func() {
		c, err := l.AcceptTCP()
		if err != nil {
			arrived <- err
			return
		}
		defer c.Close()
		if got := c.LocalAddr().String(); got != somewhere.String() {
			arrived <- fmt.Errorf("a connection to %s arrived as one to %s", somewhere, got)
			return
		}
		_, err = c.Write([]byte("x"))
		arrived <- err
	}()
	err := within(s, func() error {
		c, err := (&net.Dialer{Deadline: deadline}).Dial("tcp4", somewhere.String())
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(deadline)
		_, err = io.ReadFull(c, make([]byte, 1))
		return err
	})
	if err != nil {
		l.SetDeadline(past)
	}
	return errors.Join(<-arrived, err)
}

func probeUDP(s *os.File, socks sockets, deadline time.Time) error {
	socks.udp.SetDeadline(deadline)
	arrived := make(chan error, 1)
	go func() {
		buf, oob := make([]byte, 64), make([]byte, 128)
		_, on, _, from, err := socks.udp.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			arrived <- err
			return
		}
		dst, ok := originalDestination(oob[:on])
		if !ok || dst != somewhere {
			arrived <- fmt.Errorf("a packet to %s arrived as one to %s", somewhere, dst)
			return
		}
		arrived <- socks.reply([]byte("x"), dst, from)
	}()
	err := within(s, func() error {
		c, err := net.Dial("udp4", somewhere.String())
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(deadline)
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 8))
		return err
	})
	if err != nil {
		socks.udp.SetDeadline(past)
	}
	return errors.Join(<-arrived, err)
}
