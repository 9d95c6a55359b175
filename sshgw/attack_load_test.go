package sshgw

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// loadEnv tells a test process that it is a client that holds sessions open:
// "ADDRESS KEYFILE CONNECTIONS SESSIONS".
const loadEnv = "SANDGATE_TEST_LOAD"

// TestLoadClient is no test but the client of TestIdleSessions, in a process of
// its own so that its memory is not counted.
func TestLoadClient(t *testing.T) {
	if os.Getenv(loadEnv) == "" {
		return // nobody asks for one
	}
	var addr, keyFile string
	var conns, each int
	if _, err := fmt.Sscan(os.Getenv(loadEnv), &addr, &keyFile, &conns, &each); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := gossh.ParsePrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &gossh.ClientConfig{
		User: "box", Auth: []gossh.AuthMethod{gossh.PublicKeys(key)}, Timeout: patience,
		HostKeyCallback: gossh.InsecureIgnoreHostKey(), //nolint:gosec // the gateway of this very test
	}
	for range conns {
		c, err := gossh.Dial("tcp", addr, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			s, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.RequestPty("xterm", 24, 80, nil); err != nil {
				t.Fatal(err)
			}
			if err := s.Start("exec sleep 1000"); err != nil {
				t.Fatal(err)
			}
		}
	}
	fmt.Println("all open")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test lets go
}

// memory is what this process has for itself, and its share of what it has
// together with others, in bytes.
func memory(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Skip("the kernel tells no PSS")
	return 0
}

// A thousand sessions that wait for somebody to type cost little memory.
func TestIdleSessions(t *testing.T) {
	g := newGateway(t, func(c *Config) {
		c.Limits.ConnectionsPerPrincipal, c.Limits.SessionsPerPrincipal, c.Limits.SessionsPerConnection = 10000, 10000, 10000
	})
	g.logsIn(t, "127.0.0.1")
	before := memory(t)
	conns, each := scale(250), 4
	cmd := exec.Command(os.Args[0], "-test.run=^TestLoadClient$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", loadEnv, g.addr, filepath.Join(g.dir, "alice"), conns, each))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	open := false
	said := new(strings.Builder)
	for lines := bufio.NewScanner(out); !open && lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		open = lines.Text() == "all open"
	}
	if !open {
		t.Fatalf("the client ended: %s", said)
	}
	after := memory(t)
	per := (after - before) / int64(conns*each)
	t.Logf("%d idle sessions on %d connections: %d KiB of PSS each, the guest's part in this process included", conns*each, conns, per>>10)
	if per > idleCost {
		t.Errorf("a session takes %d bytes", per)
	}
}

// P8: two hundred times, each way: not a byte and no status is lost.
func TestP08TwoHundredTimes(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.Limits.ConnectionsPerPrincipal = 1000 })
	control := "ControlPath=" + filepath.Join(g.dir, "mux")
	mux, _, _ := g.master(t, "box@gw")
	mux("box@gw", "true").expect(t, 0, "")
	jump := []string{"-n", "-o", "ProxyCommand=" + strings.Join(g.ssh("-W", "[%h]:22", "gw").Args, " "), "-o", "HostName=sbx_alice", "-p", "22", "-o", "Port=22"}
	for name, args := range map[string][]string{
		"terminal":      {"-tt", "-o", "LogLevel=ERROR"},
		"jump":          jump,
		"ControlMaster": {"-n", "-o", control, "-o", "ControlMaster=no"},
	} {
		t.Run(name, func(t *testing.T) {
			dest := "box@gw"
			if name == "jump" {
				dest = "sbx_alice"
			}
			var wg sync.WaitGroup
			turns := make(chan int, 200)
			for i := range scale(200) {
				turns <- i
			}
			close(turns)
			for range 4 {
				wg.Go(func() {
					for i := range turns {
						r := run(t, g.ssh(append(args, dest, "printf x; exit 7")...), nil)
						if r.status != 7 || r.stdout != "x" {
							t.Errorf("%d: status %d, stdout %q, stderr %q", i, r.status, r.stdout, r.stderr)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
