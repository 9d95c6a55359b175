package netd

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// hello is the first flight of a real client.
func hello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	go tls.Client(client, cfg).Handshake()
	server.SetDeadline(time.Now().Add(patience))
	b := make([]byte, 5)
	_, err := io.ReadFull(server, b)
	must(t, err)
	rest := make([]byte, int(b[3])<<8|int(b[4]))
	_, err = io.ReadFull(server, rest)
	must(t, err)
	server.Close()
	return slices.Concat(b, rest)
}

// fragment cuts a hello into records of n bytes.
func fragment(h []byte, n int) []byte {
	var out []byte
	for body := h[5:]; len(body) > 0; body = body[min(n, len(body)):] {
		part := body[:min(n, len(body))]
		out = append(out, 22, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

func TestHelloName(t *testing.T) {
	with := hello(t, &tls.Config{ServerName: "site.test", NextProtos: []string{"h2"}})
	without := hello(t, &tls.Config{InsecureSkipVerify: true})
	large := hello(t, &tls.Config{ServerName: "large.test", NextProtos: strings.Split(strings.Repeat(strings.Repeat("p", 200)+" ", 60)+"h2", " ")})
	for _, c := range []struct {
		what string
		in   []byte
		name string
		err  error
	}{
		{"a name", with, "site.test", nil},
		{"bytes after it", append(bytes.Clone(with), "more"...), "site.test", nil},
		{"no name", without, "", nil},
		{"the least", smallHello("site.test"), "site.test", nil},
		{"many records", fragment(with, 7), "site.test", nil},
		{"records of one byte", fragment(with, 1), "site.test", nil},
		{"a large one", large, "large.test", nil},
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), "", errNotTLS},
		{"an alert", []byte{21, 3, 1, 0, 2, 1, 0}, "", errNotTLS},
		{"another message", []byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, "", errNotTLS},
		{"an empty record", []byte{22, 3, 1, 0, 0, 1}, "", errNotTLS},
		{"SSLv2", []byte{0x80, 0x2e, 1, 3, 1}, "", errNotTLS},
	} {
		name, more, err := helloName(c.in)
		if name != c.name || more || !errors.Is(err, c.err) {
			t.Errorf("%s: %q %v %v", c.what, name, more, err)
		}
	}
	for i := range with {
		if name, more, err := helloName(with[:i]); name != "" || !more || err != nil {
			t.Fatalf("%d of %d bytes: %q %v %v", i, len(with), name, more, err)
		}
	}
}

// smallHello is the least that is a hello.
func smallHello(name string) []byte {
	n := len(name)
	b := append(make([]byte, 2+32+1), 0, 2, 0x13, 1, 1, 0, 0, byte(n+9), 0, 0, 0, byte(n+5), 0, byte(n+3), 0, 0, byte(n))
	b[0], b[1] = 3, 3
	b = append(b, name...)
	return append([]byte{22, 3, 1, 0, byte(len(b) + 4), 1, 0, 0, byte(len(b))}, b...)
}

// What this parser reads, crypto/tls reads too.
func FuzzHelloName(f *testing.F) {
	f.Add(smallHello("site.test"))
	f.Add(fragment(smallHello("site.test"), 9))
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		name, more, err := helloName(b)
		if err != nil || more {
			if name != "" {
				t.Fatalf("a name %q together with %v %v", name, more, err)
			}
			return
		}
		theirs, asked := "", errors.New("read")
		err = tls.Server(replay{bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			theirs = h.ServerName
			return nil, asked
		}}).Handshake()
		// It refuses more than this one does; where it does not, they agree.
		if errors.Is(err, asked) && theirs != strings.TrimSuffix(name, ".") {
			t.Fatalf("%q here, and %q to crypto/tls", name, theirs)
		}
	})
}

// replay is a connection that says what it was given.
type replay struct{ io.Reader }

func (replay) Write(b []byte) (int, error)      { return len(b), nil }
func (replay) Close() error                     { return nil }
func (replay) LocalAddr() net.Addr              { return nil }
func (replay) RemoteAddr() net.Addr             { return nil }
func (replay) SetDeadline(time.Time) error      { return nil }
func (replay) SetReadDeadline(time.Time) error  { return nil }
func (replay) SetWriteDeadline(time.Time) error { return nil }

func TestMaybeTLS(t *testing.T) {
	good, bad := hello(t, &tls.Config{ServerName: "a.test"}), hello(t, &tls.Config{ServerName: "b.test"})
	nameless := hello(t, &tls.Config{InsecureSkipVerify: true})
	for what, c := range map[string]struct {
		in []byte
		ok bool
	}{"good": {good, true}, "bad": {bad, false}, "nameless": {nameless, true}, "ssh": {[]byte("SSH-2.0-x\r\n"), true}, "postgres": {[]byte{0, 0, 0, 8, 4, 210, 22, 47}, true}} {
		f := filter{Kind: filterMaybeTLS}
		out, err := f.feed(c.in, only("a.test"), none)
		if (err == nil) != c.ok || c.ok && (!bytes.Equal(out, c.in) || f.Kind != filterNone) {
			t.Errorf("%s: %d of %d bytes, %v", what, len(out), len(c.in), fmt.Sprint(err))
		}
	}
}
