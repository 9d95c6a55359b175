package netd

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// internet is what a sandbox may want to reach, in a namespace of its own.
//
//	203.0.113.10, 2001:db8::10  site.test      web, ssh (22), echo (7, TCP and UDP), data (9000), sink (9001)
//	203.0.113.20                cdn            two names on one address
//	203.0.113.53                a name server
//	169.254.169.254, 10.9.0.1   what nobody is to reach
type internet struct {
	t     testing.TB
	ns    *os.File
	mu    sync.Mutex
	names map[string][]string
	asked map[string]int
}

func newInternet(t testing.TB, ns *os.File) *internet {
	n := &internet{t: t, ns: ns, asked: map[string]int{}, names: map[string][]string{
		"site.test": {"203.0.113.10", "2001:db8::10"}, "other.test": {"203.0.113.10"}, "a.wild.test": {"203.0.113.10"}, "wild.test": {"203.0.113.10"},
		"v6.test": {"2001:db8::10"}, "cdn-good.test": {"203.0.113.20"}, "cdn-evil.test": {"203.0.113.20"},
		"to-private.test": {"10.9.0.1"}, "to-metadata.test": {"169.254.169.254"}, "to-host.test": {hostAddr}, "to-loopback.test": {"127.0.0.1"},
		"to-mapped.test": {"::ffff:10.9.0.1"}, "to-host6.test": {"2001:db8::1"}, "to-nat64.test": {"64:ff9b::a09:1"}, "half-private.test": {"10.9.0.1", "203.0.113.10"},
	}}
	must(t, within(ns, func() error {
		if err := addresses("lo", "127.0.0.1/8", "169.254.169.254/32", "10.9.0.1/32", "172.16.9.1/32", "192.168.9.1/32", "fd00:ec2::254/128", "64:ff9b::a09:1/128"); err != nil {
			return err
		}
		if err := addresses("inet0", "203.0.113.254/24", "203.0.113.10/24", "203.0.113.20/24", dnsAddr+"/24", "2001:db8::fe/64", "2001:db8::10/64"); err != nil {
			return err
		}
		return sysctl("net/ipv4/conf/all/rp_filter", "0")
	}))
	n.serveWeb(80, nil)
	n.serveWeb(8080, nil)
	n.serveWeb(443, n.certificate())
	n.serveWeb(8443, n.certificate())
	n.serve(22, func(c net.Conn) { io.WriteString(c, "SSH-2.0-test\r\n"); io.Copy(io.Discard, c) })
	n.serve(7, func(c net.Conn) { io.Copy(c, c) })
	n.serve(9000, serveData)
	n.serve(9001, serveSink)
	n.serveDNS()
	n.serveUDPEcho()
	return n
}

// serve runs f for every connection to a port of any address.
func (n *internet) serve(port int, f func(net.Conn)) {
	var l net.Listener
	must(n.t, within(n.ns, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	}))
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				f(c)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	n.t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

// serveWeb answers every request with who it was for.
func (n *internet) serveWeb(port int, cert *tls.Config) {
	n.serve(port, func(c net.Conn) {
		sni := "-"
		if cert != nil {
			t := tls.Server(c, cert)
			if t.Handshake() != nil {
				return
			}
			sni, c = t.ConnectionState().ServerName, t
		}
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if r.Header.Get("Upgrade") == "websocket" {
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
				io.Copy(c, in)
				return
			}
			k, _ := io.Copy(io.Discard, r.Body)
			body := fmt.Sprintf("sni=%s host=%s body=%d ", sni, r.Host, k)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			if r.Close {
				return
			}
		}
	})
}

func (n *internet) certificate() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(n.t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"site.test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(n.t, err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// serveData reads "N\n" and answers with N bytes that depend on N alone.
func serveData(c net.Conn) {
	var size int64
	if _, err := fmt.Fscanln(c, &size); err != nil {
		return
	}
	io.Copy(c, io.LimitReader(dataStream(), size))
}

func dataStream() io.Reader { return mathrand.NewChaCha8([32]byte{1}) }

// serveSink reads to the end and answers with the length and the digest.
func serveSink(c net.Conn) {
	h := sha256.New()
	size, _ := io.Copy(h, c)
	fmt.Fprintf(c, "%d %x", size, h.Sum(nil))
}

func (n *internet) serveUDPEcho() {
	var pc net.PacketConn
	must(n.t, within(n.ns, func() (err error) {
		pc, err = net.ListenPacket("udp4", "203.0.113.10:7")
		return err
	}))
	n.packets(pc, func(p []byte) []byte { return p })
}

func (n *internet) packets(pc net.PacketConn, f func([]byte) []byte) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 65535)
		for {
			k, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := f(buf[:k]); answer != nil {
				pc.WriteTo(answer, from)
			}
		}
	}()
	n.t.Cleanup(func() { pc.Close(); <-done })
}

func (n *internet) serveDNS() {
	var pc net.PacketConn
	must(n.t, within(n.ns, func() (err error) {
		pc, err = net.ListenPacket("udp4", dnsAddr+":53")
		return err
	}))
	n.packets(pc, n.resolve)
	n.serve(53, func(c net.Conn) {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		io.ReadFull(c, q)
		a := n.resolve(q)
		c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
	})
}

// resolve answers from the table.
func (n *internet) resolve(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	n.mu.Lock()
	addrs, ok := n.names[name]
	if !ok && strings.HasSuffix(name, ".many.test") {
		addrs, ok = []string{"203.0.113.10"}, true
	}
	n.asked[name]++
	n.mu.Unlock()
	h.Response, h.RecursionAvailable = true, true
	if !ok {
		h.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, h)
	b.StartQuestions()
	b.Question(q)
	b.StartAnswers()
	rh := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
	for _, a := range addrs {
		addr := netip.MustParseAddr(a)
		if addr.Is4() && q.Type == dnsmessage.TypeA {
			b.AResource(rh, dnsmessage.AResource{A: addr.As4()})
		}
		if addr.Is6() && q.Type == dnsmessage.TypeAAAA {
			b.AAAAResource(rh, dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}
