package netd

import (
	"context"
	"encoding/binary"
	"errors"
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
	raw *os.File // writes packets with a source of our choice
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
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
		if err != nil {
			return fmt.Errorf("open socket for replies: %w", err)
		}
		s.raw = os.NewFile(uintptr(fd), "replies")
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

// plugged reports whether R still has its interface, which goes with the other
// end in S. Whoever may not enter R may ask by a socket in it.
func (s sockets) plugged() bool {
	ifr, err := unix.NewIfreq(routerName)
	if err != nil {
		return false
	}
	raw, err := s.raw.SyscallConn()
	if err != nil {
		return false
	}
	cerr := raw.Control(func(fd uintptr) { err = unix.IoctlIfreq(int(fd), unix.SIOCGIFINDEX, ifr) })
	return errors.Join(cerr, err) == nil
}

func (s sockets) close() {
	if s.tcp != nil {
		s.tcp.Close()
	}
	if s.udp != nil {
		s.udp.Close()
	}
	if s.raw != nil {
		s.raw.Close()
	}
	if s.log != nil {
		s.log.Close()
	}
}

// reply sends a packet into the sandbox that comes from wherever from says.
// Like everything about UDP it promises nothing.
func (s sockets) reply(payload []byte, from, to netip.AddrPort) error {
	const ip, udp = 20, 8
	length := udp + len(payload)
	p := make([]byte, ip+length)
	src, dst := from.Addr().As4(), to.Addr().As4()
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	copy(p[12:], src[:])
	copy(p[16:], dst[:])
	u := p[ip:]
	binary.BigEndian.PutUint16(u, from.Port())
	binary.BigEndian.PutUint16(u[2:], to.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(length))
	copy(u[udp:], payload)
	binary.BigEndian.PutUint16(u[6:], udpChecksum(p[12:20], u))
	raw, err := s.raw.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.Sendto(int(fd), p, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Addr: dst})
	})
	if cerr != nil {
		return cerr
	}
	return os.NewSyscallError("sendto", err)
}

// udpChecksum is the checksum over a datagram and its two addresses.
func udpChecksum(addrs, datagram []byte) uint16 {
	sum := uint32(unix.IPPROTO_UDP) + uint32(len(datagram))
	for _, part := range [][]byte{addrs, datagram} {
		for len(part) > 1 {
			sum += uint32(binary.BigEndian.Uint16(part))
			part = part[2:]
		}
		if len(part) == 1 {
			sum += uint32(part[0]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	if sum == 0xffff {
		return 0xffff // 0 would mean that there is none
	}
	return ^uint16(sum)
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
