package sshgw

import (
	"fmt"
	"io"
	"os/exec"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// BenchmarkConnect measures a new connection of the OpenSSH client, from
// starting it to its end, with and without acknowledging at once. The client
// alone (ssh -V) is shown for comparison.
func BenchmarkConnect(b *testing.B) {
	for _, c := range []struct {
		name  string
		setup func(*Server)
		dest  []string
	}{
		{"quickack", func(*Server) {}, []string{"-n", "gw", "whoami"}},
		{"delayed", func(s *Server) { s.slowACK = true }, []string{"-n", "gw", "whoami"}},
		{"no-peek", func(s *Server) { s.fastAES = false }, []string{"-n", "gw", "whoami"}},
		{"sandbox", func(*Server) {}, []string{"-n", "box@gw", "true"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			g := newGateway(b)
			c.setup(g.srv)
			for b.Loop() {
				if r := run(b, g.ssh(c.dest...), nil); r.status != 0 {
					b.Fatal(r)
				}
			}
		})
	}
	b.Run("client-alone", func(b *testing.B) {
		path := sshPath(b)
		for b.Loop() {
			if err := exec.Command(path, "-V").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkBulk measures the throughput of one session in MiB/s with the
// OpenSSH client, through a pipe of the sandbox.
func BenchmarkBulk(b *testing.B) {
	const size = 256 << 20
	for _, cipher := range []string{"", gossh.CipherChaCha20Poly1305, gossh.CipherAES256CTR} {
		name := cipher
		if name == "" {
			name = "chosen"
		}
		opts := func(args ...string) []string {
			if cipher == "" {
				return args
			}
			return append([]string{"-c", cipher}, args...)
		}
		b.Run("down/"+name, func(b *testing.B) {
			g := newGateway(b)
			b.SetBytes(size)
			for b.Loop() {
				cmd := g.ssh(opts("-n", "box@gw", fmt.Sprintf("head -c %d /dev/zero", size))...)
				cmd.Stdout = nil // /dev/null
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("up/"+name, func(b *testing.B) {
			g := newGateway(b)
			b.SetBytes(size)
			for b.Loop() {
				zero := exec.Command("head", "-c", fmt.Sprint(size), "/dev/zero")
				pipe, err := zero.StdoutPipe()
				if err != nil {
					b.Fatal(err)
				}
				cmd := g.ssh(opts("box@gw", "cat >/dev/null")...)
				cmd.Stdin = pipe
				if err := zero.Start(); err != nil {
					b.Fatal(err)
				}
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				_ = zero.Wait()
			}
		})
	}
}

// BenchmarkSession measures one command over an open connection.
func BenchmarkSession(b *testing.B) {
	for _, c := range []struct{ user, cmd string }{{"gw", "whoami"}, {"box", "true"}} {
		b.Run(c.user, func(b *testing.B) {
			g := newGateway(b)
			client := g.dial(c.user, "alice")
			for b.Loop() {
				s, err := client.NewSession()
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Run(c.cmd); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEcho measures the way of one key press through a terminal and back.
func BenchmarkEcho(b *testing.B) {
	g := newGateway(b)
	s, err := g.dial("box", "alice").NewSession()
	if err != nil {
		b.Fatal(err)
	}
	if err := s.RequestPty("xterm", 24, 80, gossh.TerminalModes{gossh.ECHO: 0}); err != nil {
		b.Fatal(err)
	}
	in, err := s.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Start("stty raw -echo; echo ready; cat"); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 1)
	for b.Loop() {
		if _, err := in.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(out, buf); err != nil {
			b.Fatal(err)
		}
	}
}
