package sshgw

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// acknowledge has the kernel send a delayed acknowledgement now. The option
// does not last: the kernel drops it when data is sent.
func acknowledge(nc net.Conn) {
	control(nc, func(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) })
}

// roundTrip returns the round-trip time the kernel measured so far; zero when
// it is not known.
func roundTrip(nc net.Conn) (d time.Duration) {
	control(nc, func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			d = time.Duration(info.Rtt) * time.Microsecond
		}
	})
	return d
}

func control(nc net.Conn, f func(fd int)) {
	if over, ok := nc.(interface{ carrier() net.Conn }); ok {
		nc = over.carrier()
	}
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := t.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
