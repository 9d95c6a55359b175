package sshgw

import (
	"bufio"
	"bytes"
	"os"
	"slices"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// What a real client says first: its identification line and its KEXINIT.
func TestPeekHello(t *testing.T) {
	b, err := os.ReadFile("testdata/openssh-9.2-hello")
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReaderSize(bytes.NewReader(b), peekBuffer)
	ident, n, err := peekIdent(r)
	if err != nil || ident != "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u6" || !isOpenSSH(ident) {
		t.Fatalf("ident %q, %v", ident, err)
	}
	offer, err := peekKexInit(r, n)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(offer.CiphersIn, gossh.CipherAES128GCM) || offer.CiphersOut[0] != gossh.CipherChaCha20Poly1305 {
		t.Errorf("offer %+v", offer)
	}
	for i := range b {
		r := bufio.NewReaderSize(bytes.NewReader(b[:i]), peekBuffer)
		if ident, n, err := peekIdent(r); err == nil && ident != "" {
			if _, err := peekKexInit(r, n); err == nil {
				t.Fatalf("%d bytes of %d gave an offer", i, len(b))
			}
		}
	}
}
