package sshgw

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	gossh "golang.org/x/crypto/ssh"
)

// What a client says before anything is encrypted: its identification line and
// its KEXINIT. Both are looked at without being consumed.

// maxIdent is the longest identification line (RFC 4253), CR LF included.
const maxIdent = 255

// maxKexInit bounds the KEXINIT that is looked at; OpenSSH's has about 1.5 KiB.
const maxKexInit = 8 << 10

// peekBuffer holds an identification line and a KEXINIT.
const peekBuffer = 16 << 10

var errNoIdent = errors.New("no SSH identification line")

// peekIdent returns the client's identification line, without its line end,
// and the number of bytes it takes.
func peekIdent(r *bufio.Reader) (string, int, error) {
	for want := 1; ; {
		if _, err := r.Peek(want); err != nil {
			return "", 0, fmt.Errorf("read the identification line: %w", err)
		}
		b, _ := r.Peek(min(r.Buffered(), maxIdent))
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line := string(bytes.TrimSuffix(b[:i], []byte("\r")))
			if !strings.HasPrefix(line, "SSH-2.0-") && !strings.HasPrefix(line, "SSH-1.99-") {
				return "", 0, errNoIdent
			}
			return line, i + 1, nil
		}
		if len(b) == maxIdent {
			return "", 0, errNoIdent
		}
		want = len(b) + 1
	}
}

// kexInit is SSH_MSG_KEXINIT (RFC 4253, 7.1).
type kexInit struct {
	Cookie                  [16]byte `sshtype:"20"`
	Kex, HostKey            []string
	CiphersIn, CiphersOut   []string
	MACsIn, MACsOut         []string
	CompressIn, CompressOut []string
	LangIn, LangOut         []string
	FirstFollows            bool
	Reserved                uint32
}

// peekKexInit returns the KEXINIT that follows the first skip bytes.
func peekKexInit(r *bufio.Reader, skip int) (*kexInit, error) {
	b, err := r.Peek(skip + 5)
	if err != nil {
		return nil, fmt.Errorf("read KEXINIT: %w", err)
	}
	length, padding := binary.BigEndian.Uint32(b[skip:]), uint32(b[skip+4])
	if length > maxKexInit || length < padding+2 {
		return nil, errors.New("read KEXINIT: bad packet length")
	}
	b, err = r.Peek(skip + 4 + int(length))
	if err != nil {
		return nil, fmt.Errorf("read KEXINIT: %w", err)
	}
	return parseKexInit(b[skip+5 : skip+4+int(length-padding)])
}

func parseKexInit(payload []byte) (*kexInit, error) {
	var k kexInit
	if err := gossh.Unmarshal(payload, &k); err != nil {
		return nil, errors.New("read KEXINIT: malformed")
	}
	return &k, nil
}

// isOpenSSH reports whether an identification line is of OpenSSH, whose
// clients send their KEXINIT without waiting for the server's.
func isOpenSSH(ident string) bool { return strings.HasPrefix(ident, "SSH-2.0-OpenSSH_") }
