package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/sandgate/sandgate/sshgw"
)

// tryOut is something a client of the sandbox's account does. It returns an
// error when that did not work.
type tryOut struct {
	name string
	do   func(m *matrix, c *ssh.Client, id string, signer ssh.Signer) error
}

// output runs a command and wants "in".
func output(c *ssh.Client, command string) error {
	s, err := c.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	var errs strings.Builder
	s.Stderr = &errs
	out, err := s.Output(command)
	if err != nil || strings.TrimSpace(string(out)) != "in" {
		return fmt.Errorf("printed %q and %q: %w", out, errs.String(), errors.Join(err, errors.New("failed")))
	}
	return nil
}

// greeted wants to be told "in".
func greeted(c net.Conn, err error) error {
	if err != nil {
		return err
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "in" {
		return fmt.Errorf("read %q, %w", b, errors.Join(err, errors.New("not what was there")))
	}
	return nil
}

func listens(l net.Listener, err error) error {
	if err != nil {
		return err
	}
	return l.Close()
}

func tryOuts() []tryOut {
	return []tryOut{
		{"shell", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			var out strings.Builder
			s.Stdin, s.Stdout = strings.NewReader("echo i''n; exit 0\n"), &out
			if err := s.Shell(); err != nil {
				return err
			}
			if err := s.Wait(); err != nil || !strings.Contains(out.String(), "in") {
				return errors.Join(err, errors.New(out.String()))
			}
			return nil
		}},
		{"exec", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error { return output(c, "echo in") }},
		{"sftp", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			var errs strings.Builder
			s.Stderr = &errs
			in, err := s.StdinPipe()
			if err != nil {
				return err
			}
			out, err := s.StdoutPipe()
			if err != nil {
				return err
			}
			if err := s.RequestSubsystem("sftp"); err != nil {
				return err
			}
			client, err := sftp.NewClientPipe(out, in)
			if err != nil { // in what words depends on the moment
				_ = s.Wait()
				return errors.New(errs.String())
			}
			defer client.Close()
			f, err := client.Create("in")
			if err != nil {
				return err
			}
			_, err = f.Write([]byte("in"))
			return errors.Join(err, f.Close())
		}},
		{"scp", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			in, err := s.StdinPipe()
			if err != nil {
				return err
			}
			out, err := s.StdoutPipe()
			if err != nil {
				return err
			}
			if err := s.Start("scp -t -- copied"); err != nil {
				return err
			}
			ack := make([]byte, 1)
			for _, step := range []string{"", "C0644 2 copied\n", "in\x00"} {
				_, _ = io.WriteString(in, step)
				if _, err := io.ReadFull(out, ack); err != nil || ack[0] != 0 {
					return fmt.Errorf("scp answers %q, %w", ack, errors.Join(err, errors.New("refused")))
				}
			}
			_ = in.Close()
			return s.Wait()
		}},
		{"-L", func(m *matrix, c *ssh.Client, _ string, _ ssh.Signer) error { return greeted(c.Dial("tcp", m.tcp)) }},
		{"-D", func(m *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			_, port, err := net.SplitHostPort(m.tcp)
			if err != nil {
				return err
			}
			return greeted(c.Dial("tcp", "localhost:"+port))
		}},
		{"-R", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			return listens(c.Listen("tcp", "127.0.0.1:0"))
		}},
		{"-J", func(m *matrix, _ *ssh.Client, id string, signer ssh.Signer) error {
			outer, err := m.dial("sandgate", signer)
			if err != nil {
				return err
			}
			defer outer.Close()
			through, err := outer.Dial("tcp", id+":22")
			if err != nil {
				return err
			}
			conn, channels, requests, err := ssh.NewClientConn(through, "inner", m.clientConfig(id, signer))
			if err != nil {
				return err
			}
			inner := ssh.NewClient(conn, channels, requests)
			defer inner.Close()
			return output(inner, "echo in")
		}},
		{"streamlocal", func(m *matrix, c *ssh.Client, _ string, _ ssh.Signer) error { return greeted(c.Dial("unix", m.unix)) }},
		{"-R streamlocal", func(m *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			return listens(c.ListenUnix(filepath.Join(m.sockets, "back")))
		}},
		{"agent", func(_ *matrix, c *ssh.Client, _ string, _ ssh.Signer) error {
			if err := agent.ForwardToAgent(c, agent.NewKeyring()); err != nil {
				return err
			}
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			if err := agent.RequestAgentForwarding(s); err != nil {
				return err
			}
			out, err := s.Output(`test -S "$SSH_AUTH_SOCK" && echo in`)
			if err != nil || string(out) != "in\n" {
				return fmt.Errorf("printed %q: %w", out, errors.Join(err, errors.New("no agent")))
			}
			return nil
		}},
		{"command tree", func(m *matrix, _ *ssh.Client, id string, signer ssh.Signer) error {
			c, err := m.dial("sandgate", signer)
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			out, err := s.CombinedOutput("get " + id)
			if err != nil {
				return fmt.Errorf("%s%w", out, err)
			}
			return nil
		}},
		{"API", func(m *matrix, _ *ssh.Client, id string, signer ssh.Signer) error {
			c, err := m.dial("sandgate", signer)
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := c.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			in, err := s.StdinPipe()
			if err != nil {
				return err
			}
			out, err := s.StdoutPipe()
			if err != nil {
				return err
			}
			if err := s.RequestSubsystem(sshgw.APISubsystem); err != nil {
				return err
			}
			client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				return pipeConn{in, out}, nil
			}}}
			resp, err := client.Get("http://gateway/sandbox/" + id)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
				return errors.New(string(body))
			}
			return nil
		}},
	}
}

// pipeConn is a connection of two pipes.
type pipeConn struct {
	io.WriteCloser
	r io.Reader
}

func (p pipeConn) Read(b []byte) (int, error)     { return p.r.Read(b) }
func (pipeConn) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (pipeConn) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (pipeConn) SetDeadline(time.Time) error      { return nil }
func (pipeConn) SetReadDeadline(time.Time) error  { return nil }
func (pipeConn) SetWriteDeadline(time.Time) error { return nil }
