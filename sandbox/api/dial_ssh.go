package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Subsystem is the SSH subsystem behind which a gateway serves the API.
const Subsystem = "sandgate-api"

// What may stand in a destination handed to the ssh program. Neither may look
// like an option to it.
var (
	sshHostRule = regexp.MustCompile(`^[A-Za-z0-9_.:%\[\]][A-Za-z0-9_.:%\[\]-]*$`)
	sshUserRule = regexp.MustCompile(`^[A-Za-z0-9_.+@][A-Za-z0-9_.+@-]*$`)
)

// sshArgs is the command line that connects to the subsystem.
func sshArgs(host string, u *url.URL) ([]string, error) {
	if !sshHostRule.MatchString(u.Hostname()) || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, badHost(host)
	}
	args := []string{"-T", "-o", "ClearAllForwardings=yes", "-o", "ForwardAgent=no", "-o", "ForwardX11=no"}
	if u.User != nil {
		if _, has := u.User.Password(); has || !sshUserRule.MatchString(u.User.Username()) {
			return nil, badHost(host)
		}
		args = append(args, "-l", u.User.Username())
	}
	if p := u.Port(); p != "" {
		args = append(args, "-p", p)
	}
	return append(args, "-s", "--", u.Hostname(), Subsystem), nil
}

// dialSSH reaches the API through the system's ssh, which brings the user's
// keys, agent, configuration and known hosts. All requests share one
// connection, as HTTP/2.
func dialSSH(host string, u *url.URL, cfg DialConfig) (*Client, error) {
	args, err := sshArgs(host, u)
	if err != nil {
		return nil, err
	}
	d := &sshDialer{program: cfg.SSH, args: args}
	if d.program == "" {
		d.program = "ssh"
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c := NewClient(&http.Transport{DialContext: d.dial, Protocols: protocols, DisableCompression: true})
	c.host, c.explain, c.close = host, d.explain, d.close
	return c, nil
}

// sshDialer starts ssh processes, and ends them.
type sshDialer struct {
	program string
	args    []string

	mu   sync.Mutex
	last *sshConn
}

func (d *sshDialer) dial(context.Context, string, string) (net.Conn, error) {
	cmd := exec.Command(d.program, d.args...)
	c := &sshConn{cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &c.stderr
	cmd.WaitDelay = sshExitGrace // a background ControlMaster keeps stderr open
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, fault.Wrap(err, fault.Unavailable, "there is no ssh program in PATH; install an OpenSSH client")
		}
		return nil, err
	}
	d.mu.Lock()
	d.last = c
	d.mu.Unlock()
	return c, nil
}

// explain adds what ssh said when it was the one that failed.
func (d *sshDialer) explain(err error) string {
	d.mu.Lock()
	c := d.last
	d.mu.Unlock()
	if c == nil {
		return err.Error()
	}
	_ = c.Close()
	if said := c.stderr.last(); said != "" {
		return said
	}
	return err.Error()
}

func (d *sshDialer) close() {
	d.mu.Lock()
	c := d.last
	d.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

// sshConn is an ssh process as a connection.
type sshConn struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	stderr tail
	once   sync.Once
	done   chan struct{}
}

func (c *sshConn) Read(b []byte) (int, error)  { return c.out.Read(b) }
func (c *sshConn) Write(b []byte) (int, error) { return c.in.Write(b) }

// sshExitGrace is how long ssh may take to end after its stdin was closed.
const sshExitGrace = 2 * time.Second

// Close ends ssh and waits for it.
func (c *sshConn) Close() error {
	c.once.Do(func() {
		defer close(c.done)
		_ = c.in.Close()
		kill := time.AfterFunc(sshExitGrace, func() { _ = c.cmd.Process.Kill() })
		defer kill.Stop()
		_ = c.cmd.Wait() // how it ended is in stderr
	})
	<-c.done
	return nil
}

func (c *sshConn) LocalAddr() net.Addr              { return sshAddr{} }
func (c *sshConn) RemoteAddr() net.Addr             { return sshAddr{} }
func (c *sshConn) SetDeadline(time.Time) error      { return nil }
func (c *sshConn) SetReadDeadline(time.Time) error  { return nil }
func (c *sshConn) SetWriteDeadline(time.Time) error { return nil }

type sshAddr struct{}

func (sshAddr) Network() string { return "ssh" }
func (sshAddr) String() string  { return "ssh" }

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	t.buf = t.buf[max(0, len(t.buf)-tailSize):]
	return len(b), nil
}

// last returns the last line that says something, without control characters.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.ToValidUTF8(string(t.buf), "?"), "\n")
	for _, line := range slices.Backward(lines) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r >= 0x7f && r < 0xa0 {
				return ' '
			}
			return r
		}, line))
		if line != "" {
			return line
		}
	}
	return ""
}
