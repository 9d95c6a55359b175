package netd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Messages of the kernel's packet log (linux/netfilter/nfnetlink_log.h).
const (
	logMsgPacket = unix.NFNL_SUBSYS_ULOG << 8
	logMsgConfig = unix.NFNL_SUBSYS_ULOG<<8 | 1

	logCfgCommand = 1
	logCfgMode    = 2
	logCmdBind    = 1
	logCopyPacket = 2

	logAttrPayload = 9
	logAttrPrefix  = 10
)

// openPacketLog runs in R and subscribes to what the rules log there.
func openPacketLog() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open packet log: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind packet log: %w", err)
	}
	for _, attr := range [][]byte{
		netlinkAttr(logCfgCommand, []byte{logCmdBind}),
		netlinkAttr(logCfgMode, []byte{0, 0, 0, 64, logCopyPacket, 0}),
	} {
		if err := configurePacketLog(fd, attr); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("subscribe to packet log: %w", err)
		}
	}
	return os.NewFile(uintptr(fd), "packet log"), nil
}

func configurePacketLog(fd int, attr []byte) error {
	msg := make([]byte, unix.SizeofNlMsghdr+4, unix.SizeofNlMsghdr+4+len(attr))
	msg = append(msg, attr...)
	binary.NativeEndian.PutUint32(msg[0:], uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], logMsgConfig)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg[unix.SizeofNlMsghdr] = unix.AF_UNSPEC
	binary.BigEndian.PutUint16(msg[unix.SizeofNlMsghdr+2:], logGroup)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	// The answer is there when sendto returns: netlink is a function call.
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("unexpected answer of the kernel")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

func netlinkAttr(kind uint16, data []byte) []byte {
	b := make([]byte, (4+len(data)+3)&^3)
	binary.NativeEndian.PutUint16(b, uint16(4+len(data)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	copy(b[4:], data)
	return b
}

// loggedPacket is one packet that the rules have refused.
type loggedPacket struct {
	prefix   string
	src, dst netip.Addr
	proto    byte
}

// parsePacketLog reads the messages of one datagram. The packets are written
// by the sandbox and may be anything.
func parsePacketLog(b []byte) []loggedPacket {
	var found []loggedPacket
	for len(b) >= unix.SizeofNlMsghdr+4 {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr+4 || size > len(b) {
			break
		}
		if binary.NativeEndian.Uint16(b[4:]) == logMsgPacket {
			if p, ok := parseLogged(b[unix.SizeofNlMsghdr+4 : size]); ok {
				found = append(found, p)
			}
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return found
}

func parseLogged(attrs []byte) (p loggedPacket, ok bool) {
	for len(attrs) >= 4 {
		size := int(binary.NativeEndian.Uint16(attrs))
		if size < 4 || size > len(attrs) {
			return p, false
		}
		data := attrs[4:size]
		switch binary.NativeEndian.Uint16(attrs[2:]) & 0x3fff {
		case logAttrPrefix:
			p.prefix = strings.TrimRight(string(data), "\x00")
		case logAttrPayload:
			if len(data) >= 20 && data[0]>>4 == 4 {
				p.proto = data[9]
				p.src, p.dst = netip.AddrFrom4([4]byte(data[12:16])), netip.AddrFrom4([4]byte(data[16:20]))
				ok = true
			}
		}
		attrs = attrs[min(len(attrs), (size+3)&^3):]
	}
	return p, ok
}

// protocolName is what people call an IP protocol.
func protocolName(proto byte) string {
	switch proto {
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return fmt.Sprintf("ip protocol %d", proto)
}
