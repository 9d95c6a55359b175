package sshgw

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// What a client may name as an end of a forward, whichever request carries it:
// nothing that a log, a refusal or the guest could take for something else, and
// nothing but what the client has sent.
func FuzzForwards(f *testing.F) {
	type tcp struct {
		Host string
		Port uint32
	}
	for _, host := range []string{"", "*", "localhost", "0.0.0.0", "::", "[::1]", "169.254.169.254", "sbx_4k2m7qxw3f5z", "a b", "a\x1b]0;x\a", strings.Repeat("a", 256)} {
		f.Add(gossh.Marshal(tcp{host, 0}))
		f.Add(gossh.Marshal(tcp{host, 22}))
		f.Add(gossh.Marshal(struct {
			tcp
			Origin     string
			OriginPort uint32
		}{tcp{host, 65536}, "127.0.0.1", 1}))
	}
	for _, path := range []string{"", "/tmp/a.sock", "a.sock", "\x00abstract", "/tmp/a\x00b", "../../run/x", "/" + strings.Repeat("p", 255)} {
		f.Add(gossh.Marshal(struct{ P string }{path}))
		f.Add(gossh.Marshal(struct {
			P, R string
			N    uint32
		}{path, "", 0}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if host, port, err := parseListenTCP(b); err == nil {
			if !bytes.Equal(gossh.Marshal(tcp{host, uint32(port)}), b) || !plainHost(host) {
				t.Errorf("tcpip-forward of %q is %q %d", b, host, port)
			}
		}
		if host, port, err := parseDirectTCP(b); err == nil {
			if !bytes.HasPrefix(b, gossh.Marshal(tcp{host, uint32(port)})) || !plainHost(host) || host == "" || port == 0 {
				t.Errorf("direct-tcpip of %q is %q %d", b, host, port)
			}
		}
		if path, err := parseListenUnix(b); err == nil {
			if !bytes.Equal(field(path), b) || !plainPath(path) {
				t.Errorf("streamlocal-forward of %q is %q", b, path)
			}
		}
		if path, err := parseDirectUnix(b); err == nil {
			if !bytes.HasPrefix(b, field(path)) || !plainPath(path) {
				t.Errorf("direct-streamlocal of %q is %q", b, path)
			}
		}
	})
}

// field is a string as it travels.
func field(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

func plainHost(s string) bool {
	return len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func plainPath(s string) bool {
	return s != "" && len(s) <= 255 && !strings.Contains(s, "\x00")
}
