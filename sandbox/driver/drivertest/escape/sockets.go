package main

import (
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sockets tries to get out of a sandbox without a network: with sockets of
// every kind, and to the addresses given as NETWORK/ADDRESS.
func sockets(addresses []string) error {
	for _, s := range []struct {
		name              string
		family, typ, prot int
	}{
		{"packet", unix.AF_PACKET, unix.SOCK_RAW, int(htons(unix.ETH_P_ALL))},
		{"packet cooked", unix.AF_PACKET, unix.SOCK_DGRAM, int(htons(unix.ETH_P_ALL))},
		{"raw icmp", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw tcp", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP},
		{"raw any", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		{"raw icmp6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"xdp", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		{"can", unix.AF_CAN, unix.SOCK_RAW, unix.CAN_RAW},
	} {
		fd, err := unix.Socket(s.family, s.typ, s.prot)
		if err == nil {
			unix.Close(fd)
		}
		say("socket "+s.name, err)
	}
	say("vsock to the host", vsock())
	for _, a := range addresses {
		network, address, _ := strings.Cut(a, "/")
		say(a, send(network, address))
	}
	return nil
}

// vsock connects to the host of a virtual machine, and to the machine itself.
func vsock() error {
	var last error
	for _, cid := range []uint32{unix.VMADDR_CID_HOST, 1} {
		fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		last = unix.SetsockoptTimeval(fd, unix.AF_VSOCK, unix.SO_VM_SOCKETS_CONNECT_TIMEOUT, &unix.Timeval{Sec: 1})
		if last == nil {
			last = unix.Connect(fd, &unix.SockaddrVM{CID: cid, Port: 22})
		}
		unix.Close(fd)
		if last == nil {
			return nil
		}
	}
	return last
}

// send connects, and where that means nothing sends.
func send(network, address string) error {
	c, err := net.DialTimeout(network, address, 3*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, "from the sandbox"); err != nil {
		return err
	}
	return nil
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }
