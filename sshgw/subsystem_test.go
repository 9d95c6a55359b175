package sshgw

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

// TestMain lets the test binary be the guest program, whose builtins the
// sandbox of the tests runs.
func TestMain(m *testing.M) {
	if os.Args[0] == "guest" {
		os.Exit(agent.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func ownProgram(tb testing.TB) string {
	tb.Helper()
	path, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// tool returns a command of a program beside ssh (sftp, scp) that connects as
// g.ssh does.
func (g *gateway) tool(name string, args ...string) *exec.Cmd {
	g.tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		g.tb.Skip(name + " is not installed")
	}
	full := append([]string{"-F", filepath.Join(g.dir, "config"), "-i", filepath.Join(g.dir, "alice")}, args...)
	cmd := exec.Command(path, full...)
	cmd.Env = append(os.Environ(), "HOME="+g.dir, "LC_ALL=C.UTF-8")
	return cmd
}

// P05: files are the sandbox's: the sftp server runs there, as the session's
// user. There is none for the command tree.
func TestP05SFTP(t *testing.T) {
	g := newGateway(t)
	data := noise(2 << 20)
	local := g.write("local", string(data))
	back := filepath.Join(g.dir, "back")
	batch := strings.Join([]string{
		"put " + local + " far", "mkdir sub", "rename far sub/far", "ln -s sub/far link",
		"get link " + back, "ls -l sub",
	}, "\n") + "\n"
	r := run(t, g.tool("sftp", "-b", "-", "box@gw"), strings.NewReader(batch))
	if r.status != 0 {
		t.Fatalf("status %d, stderr %q", r.status, r.stderr)
	}
	got, err := os.ReadFile(back)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(data), err)
	}
	if there, err := os.ReadFile(filepath.Join(g.boxes.workspace, "sub/far")); err != nil || !bytes.Equal(there, data) {
		t.Errorf("in the sandbox: %d bytes, %v", len(there), err)
	}
	r = run(t, g.tool("scp", "-q", local, "box@gw:copy"), nil)
	r.expect(t, 0, "")
	if there, err := os.ReadFile(filepath.Join(g.boxes.workspace, "copy")); err != nil || !bytes.Equal(there, data) {
		t.Errorf("scp: %d bytes, %v", len(there), err)
	}
	r = run(t, g.tool("sftp", "-b", "-", "gw"), strings.NewReader("ls\n"))
	if r.status == 0 || !strings.Contains(r.stderr, "there are no files here: connect as <sandbox>@gateway") {
		t.Errorf("the control account: status %d, stderr %q", r.status, r.stderr)
	}
}
