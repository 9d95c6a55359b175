package sshgw

import (
	"math"
	"strings"

	gossh "golang.org/x/crypto/ssh"
)

// The payloads of forwarding beside direct-tcpip. The same rules hold as for
// the others: bytes of a client, and an error for what is malformed.

// maxSocketPath is more than any unix socket's path can have.
const maxSocketPath = 255

// parseListenTCP reads tcpip-forward and cancel-tcpip-forward.
func parseListenTCP(b []byte) (host string, port uint16, err error) {
	var m struct {
		Host string
		Port uint32
	}
	if err := gossh.Unmarshal(b, &m); err != nil {
		return "", 0, errPayload
	}
	if m.Port > math.MaxUint16 || !isHost(m.Host) {
		return "", 0, errPayload
	}
	return m.Host, uint16(m.Port), nil
}

// isHost reports whether s may be a host name, an address or nothing.
func isHost(s string) bool {
	if len(s) > 255 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// parseListenUnix reads streamlocal-forward@openssh.com and its cancellation.
func parseListenUnix(b []byte) (path string, err error) {
	path, err = parseString(b)
	if err != nil || !isSocketPath(path) {
		return "", errPayload
	}
	return path, nil
}

// parseDirectUnix reads the extra data of a direct-streamlocal@openssh.com
// channel. OpenSSH and Go's client differ in what they send after the path;
// nothing is reserved there that means anything.
func parseDirectUnix(b []byte) (path string, err error) {
	var m struct {
		Path string
		Rest []byte `ssh:"rest"`
	}
	if err := gossh.Unmarshal(b, &m); err != nil || !isSocketPath(m.Path) {
		return "", errPayload
	}
	return m.Path, nil
}

func isSocketPath(s string) bool {
	return s != "" && len(s) <= maxSocketPath && strings.IndexByte(s, 0) < 0
}
