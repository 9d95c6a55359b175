package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/crypto/ssh"
)

// clientProgram is a program that opens sessions and forwards.
type clientProgram struct {
	name  string
	tools []string
	// line is the command line, without what follows the destination.
	line func(s *stage) []string
	// plain, terminal and forward come before it: no terminal, one, and
	// nothing but a local forward.
	plain, terminal []string
	forward         func(from, to string) []string
	// killed is the exit status for a command that SIGTERM has ended.
	killed int
}

func clientPrograms() []clientProgram {
	hyphenL := func(from, to string) []string { return []string{"-N", "-L", from + ":" + to} }
	return []clientProgram{
		{
			name: "openssh", tools: []string{"ssh"},
			line:  func(s *stage) []string { return []string{"ssh", "-F", s.config, "box"} },
			plain: []string{"-T"}, terminal: []string{"-tt"}, forward: hyphenL,
			killed: 255,
		},
		{
			name: "plink", tools: []string{"plink", "puttygen"},
			line: func(s *stage) []string {
				return append([]string{"plink", "-P", s.port}, append(s.putty(), "box@127.0.0.1")...)
			},
			plain: []string{"-T"}, terminal: []string{"-t", "-no-antispoof"}, forward: hyphenL,
			killed: 128, // it does not say which signal
		},
		{
			name: "dbclient", tools: []string{"dbclient", "dropbearconvert"},
			line: func(s *stage) []string {
				return []string{"dbclient", "-y", "-i", s.key + ".dropbear", "-p", s.port, "box@127.0.0.1"}
			},
			plain: []string{"-T"}, terminal: []string{"-t"}, forward: hyphenL,
			killed: 0, // it takes no notice of signals
		},
	}
}

// putty is what PuTTY's programs have in common.
func (s *stage) putty() []string {
	return []string{"-batch", "-i", s.key + ".ppk", "-hostkey", ssh.FingerprintSHA256(s.host)}
}

// convertKeys brings the key into the forms that some clients want, for those
// that are here.
func (s *stage) convertKeys() {
	s.t.Helper()
	if _, err := exec.LookPath("puttygen"); err == nil {
		s.run(s.t, nil, "puttygen", s.key, "-O", "private", "-o", s.key+".ppk")
	}
	if _, err := exec.LookPath("dropbearconvert"); err == nil {
		s.run(s.t, nil, "dropbearconvert", "openssh", "dropbear", s.key, s.key+".dropbear")
	}
}

// argv puts what comes before the destination, and what comes after it, where
// they belong.
func (p clientProgram) argv(s *stage, before []string, command ...string) []string {
	line := p.line(s)
	argv := append([]string{line[0]}, before...)
	return append(append(argv, line[1:]...), command...)
}

// perform is the story, told by a program.
func (s *stage) perform(t *testing.T, p clientProgram) {
	needTools(t, p.tools...)
	command := func(command string) []string { return p.argv(s, p.plain, command) }

	t.Run("exit codes", func(t *testing.T) {
		for script, want := range map[string]int{"true": 0, "exit 7": 7, "no-such-program": 127, "kill -TERM $$": p.killed} {
			argv := command(script)
			if status, stdout, stderr := s.try(t, nil, argv[0], argv[1:]...); status != want || stdout != "" {
				t.Errorf("%s: exit status %d, want %d; %s%s", script, status, want, stdout, stderr)
			}
		}
	})

	t.Run("streams", func(t *testing.T) {
		argv := command("seq 100000; seq 200000 >&2; seq 100001 150000")
		status, stdout, stderr := s.try(t, nil, argv[0], argv[1:]...)
		// What dbclient says of the host key comes first.
		if status != 0 || stdout != numbers(150000) || !strings.HasSuffix(stderr, numbers(200000)) {
			t.Errorf("exit status %d, %d bytes of output, %d of errors: %s", status, len(stdout), len(stderr), lastOf(stderr))
		}
	})

	t.Run("64 MiB both ways", func(t *testing.T) {
		in, err := os.Open(s.bulk)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		remote := "/workspace/" + p.name + ".bulk"
		argv := command("tee " + remote + " | sha256sum | cut -c1-64")
		if got := strings.TrimSpace(s.run(t, in, argv[0], argv[1:]...)); got != s.bulkSum {
			t.Errorf("what arrived is %q, want %q", got, s.bulkSum)
		}
		back := sha256.New()
		argv = command("cat " + remote + "; rm " + remote)
		if status, stderr := s.stream(t, nil, back, argv[0], argv[1:]...); status != 0 {
			t.Errorf("exit status %d: %s", status, stderr)
		}
		if got := fmt.Sprintf("%x", back.Sum(nil)); got != s.bulkSum {
			t.Errorf("what came back is %q, want %q", got, s.bulkSum)
		}
	})

	t.Run("1000 files both ways", func(t *testing.T) {
		remote := "/workspace/" + p.name + ".small"
		archive := s.run(t, nil, "tar", "-C", s.small, "-c", ".")
		argv := command("mkdir " + remote + " && tar -C " + remote + " -x && " + treeCommand(remote))
		if got := strings.TrimSpace(s.run(t, strings.NewReader(archive), argv[0], argv[1:]...)); got != s.treeID {
			t.Errorf("what arrived is %q, want %q", got, s.treeID)
		}
		argv = command("tar -C " + remote + " -c .; rm -r " + remote)
		archive = s.run(t, nil, argv[0], argv[1:]...)
		back := t.TempDir()
		s.run(t, strings.NewReader(archive), "tar", "-C", back, "-x")
		if got := localTree(t, back); got != s.treeID {
			t.Errorf("what came back is %q, want %q", got, s.treeID)
		}
	})

	t.Run("shell", func(t *testing.T) {
		argv := p.argv(s, p.terminal)
		scr := s.screen(t, 30, 90, argv...)
		scr.expect("# ")
		scr.send("stty size; echo sto''ry $((6*7))\r")
		scr.expect("30 90")
		scr.expect("story 42")
		scr.expect("# ")
		scr.send("exit 3\r")
		if status := scr.exit(); status != 3 {
			t.Errorf("exit status %d, want 3", status)
		}
	})

	t.Run("forward", func(t *testing.T) {
		port := freePort(t)
		argv := p.argv(s, p.forward(port, "127.0.0.1:"+insidePort))
		s.background(t, argv...)
		for range 3 {
			conn := dialPatiently(t, port)
			got, err := hello(conn)
			conn.Close()
			if err != nil || got != insideText {
				t.Errorf("through the forward came %q, %v", got, err)
			}
		}
	})
}

// numbers is what seq prints.
func numbers(n int) string {
	var b bytes.Buffer
	for i := range n {
		b.WriteString(strconv.Itoa(i + 1))
		b.WriteByte('\n')
	}
	return b.String()
}

// screen runs a client on a terminal.
func (s *stage) screen(t *testing.T, rows, cols uint16, argv ...string) *screen {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = s.env, s.dir
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: cols})
	if err != nil {
		t.Fatal(err)
	}
	return watch(t, cmd, tty)
}

// background runs a client until the test ends.
func (s *stage) background(t *testing.T, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = s.env, s.dir
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	stdin, err := cmd.StdinPipe() // one that stays open
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s said: %s", argv[0], output.Bytes())
		}
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// dialPatiently connects to a port that a client is about to open.
func dialPatiently(t *testing.T, port string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+port)
		if err == nil {
			return conn
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the forward never listened: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
