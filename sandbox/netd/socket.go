package netd

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sockets are what netd holds in the R of one sandbox.
type sockets struct {
	tcp *net.TCPListener
	udp *net.UDPConn
	log *os.File // netlink; nil where the kernel has no packet log
}

// listen opens the sockets in R. Connections and packets for any address reach
// them; the local address of a connection is where it wanted to go.
func listen(r *os.File) (sockets, error) {
	var s sockets
	err := within(r, func() error {
		ctx := context.Background()
		lc := net.ListenConfig{Control: control(unix.IP_TRANSPARENT)}
		lc.SetMultipathTCP(false)
		tcp, err := lc.Listen(ctx, "tcp4", fmt.Sprintf(":%d", tproxyPort))
		if err != nil {
			return fmt.Errorf("listen for connections: %w", err)
		}
		s.tcp = tcp.(*net.TCPListener)
		lc.Control = control(unix.IP_TRANSPARENT, unix.IP_RECVORIGDSTADDR)
		udp, err := lc.ListenPacket(ctx, "udp4", fmt.Sprintf(":%d", tproxyPort))
		if err != nil {
			return fmt.Errorf("listen for packets: %w", err)
		}
		s.udp = udp.(*net.UDPConn)
		// Without it refused pings are refused all the same, unseen.
		s.log, _ = openPacketLog()
		return nil
	})
	if err != nil {
		s.close()
		return sockets{}, err
	}
	return s, nil
}

func (s sockets) close() {
	if s.tcp != nil {
		s.tcp.Close()
	}
	if s.udp != nil {
		s.udp.Close()
	}
	if s.log != nil {
		s.log.Close()
	}
}

// listenReply opens, in R, the socket from which packets seem to come from an
// address outside.
func listenReply(r *os.File, from netip.AddrPort) (*net.UDPConn, error) {
	var c *net.UDPConn
	err := within(r, func() error {
		lc := net.ListenConfig{Control: control(unix.IP_TRANSPARENT)}
		pc, err := lc.ListenPacket(context.Background(), "udp4", from.String())
		if err != nil {
			return fmt.Errorf("open socket for replies: %w", err)
		}
		c = pc.(*net.UDPConn)
		return nil
	})
	return c, err
}

// control sets options of SOL_IP before the socket is bound.
func control(options ...int) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var err error
		cerr := raw.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
				return
			}
			for _, o := range options {
				if err = unix.SetsockoptInt(int(fd), unix.SOL_IP, o, 1); err != nil {
					return
				}
			}
		})
		if cerr != nil {
			return cerr
		}
		return os.NewSyscallError("setsockopt", err)
	}
}

// originalDestination reads where a packet wanted to go.
func originalDestination(oob []byte) (netip.AddrPort, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_ORIGDSTADDR && len(m.Data) >= unix.SizeofSockaddrInet4 {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(m.Data[4:8])), binary.BigEndian.Uint16(m.Data[2:4])), true
		}
	}
	return netip.AddrPort{}, false
}
