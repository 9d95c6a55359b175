package guest_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// bridgeEnv makes the test binary the ssh of a client: it hands its arguments
// and its streams to the test at the socket that the variable names.
const bridgeEnv = "SANDGATE_GUEST_TEST_BRIDGE"

func bridge(socket string, args []string) int {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 255
	}
	if err := json.NewEncoder(c).Encode(args); err != nil {
		return 255
	}
	go func() {
		io.Copy(c, os.Stdin)
		c.CloseWrite()
	}()
	// What comes back is in pieces, and after an empty one the exit status.
	for {
		var head [4]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return 255
		}
		n := binary.BigEndian.Uint32(head[:])
		if n == 0 {
			io.ReadFull(c, head[:1])
			return int(head[0])
		}
		if _, err := io.CopyN(os.Stdout, c, int64(n)); err != nil {
			return 255
		}
	}
}

// bridged lets clients of ssh use a sandbox: what they would run over ssh runs
// in it as user. It returns the environment that they need, and their ssh.
func bridged(t *testing.T, c *guest.Conn, user string) (env []string, ssh string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sgb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for n := 0; ; n++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer client.Close()
				serveBridge(t, c, client, user, fmt.Sprintf("bridge-%s-%d", filepath.Base(dir), n))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	ssh, err = os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), bridgeEnv+"="+l.Addr().String()), ssh
}

// serveBridge runs what a client asks its ssh for: the last argument is the
// command, or with -s a subsystem.
func serveBridge(t *testing.T, c *guest.Conn, client net.Conn, user, id string) {
	in := bufio.NewReader(client)
	line, err := in.ReadBytes('\n')
	var args []string
	if err != nil || json.Unmarshal(line, &args) != nil || len(args) < 2 {
		t.Errorf("a client asks for %q: %v", line, err)
		return
	}
	cmd := guest.Command{ID: id, User: user, Script: args[len(args)-1]}
	for _, arg := range args {
		if arg == "-s" {
			cmd.Script, cmd.Builtin = "", guest.BuiltinSFTP
		}
	}
	if host := args[len(args)-2]; strings.HasPrefix(args[0], "box") || host != "box" { // rsync puts the host first
		cmd.Script = strings.Join(args[1:], " ")
	}
	pieces := writerFunc(func(b []byte) (int, error) {
		n, err := client.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
		return max(n-4, 0), err
	})
	p, err := c.Start(context.Background(), cmd, guest.Output{Stdout: pieces, Stderr: writerFunc(func(b []byte) (int, error) {
		t.Logf("%s: %s", id, b)
		return len(b), nil
	})})
	if err != nil {
		t.Errorf("start %+v: %v", cmd, err)
		return
	}
	defer p.Close()
	go func() {
		io.Copy(p, in)
		p.CloseWrite()
	}()
	exit, err := p.Wait(context.Background())
	if err != nil {
		t.Errorf("wait: %v", err)
	}
	client.Write([]byte{0, 0, 0, 0, byte(exit.Status())})
}

// client runs a client with its files in dir, and returns what it says.
func client(t *testing.T, dir string, env []string, stdin string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath(args[0])
	if err != nil {
		t.Skipf("needs %s", args[0])
	}
	cmd := exec.CommandContext(testContext(t), path, args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, env, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
