package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// atHome makes env that of a person on their machine, whose home is dir.
func atHome(dir string) func(*Env) {
	return func(e *Env) {
		e.Local = true
		e.Getenv = func(k string) string {
			if k == "HOME" {
				return dir
			}
			return ""
		}
	}
}

func (c *terminalless) atHome(dir string, args ...string) result {
	c.t.Helper()
	return c.run(nil, atHome(dir), args...)
}

// filesBelow returns the files below dir with their modes.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found[path] = info.Mode().String() + " " + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// What config-ssh writes it takes back exactly, whatever was there, and writing
// it again changes nothing.
func TestConfigSSH(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "dev")
	c.ok("create", "--name", "taken")
	for name, before := range map[string]string{
		"none": "", "unix": "Host taken\n  HostName elsewhere\n", "no end of line": "Host *\n  User me",
		"windows": "\xef\xbb\xbfHost a\r\n  User b\r\n", "only a comment": "# mine\n\n", "equals": "Include=other.conf\n\n\nHost x\n",
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			ssh := filepath.Join(home, ".ssh")
			config := filepath.Join(ssh, "config")
			if err := os.Mkdir(ssh, 0o700); err != nil {
				t.Fatal(err)
			}
			if name != "none" {
				if err := os.WriteFile(config, []byte(before), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			start := filesBelow(t, home)
			r := c.atHome(home, "config-ssh", "--dry-run")
			if r.code != 0 || !strings.Contains(r.stdout, "+Include sandgate.conf") || !same(filesBelow(t, home), start) {
				t.Fatalf("--dry-run: %d, %q, %q", r.code, r.stdout, r.stderr)
			}
			if r := c.atHome(home, "config-ssh"); r.code != 0 {
				t.Fatal(r.stderr)
			}
			done := filesBelow(t, home)
			first, _, _ := strings.Cut(strings.TrimPrefix(done[config], "-rw-r----- "), "Include sandgate.conf")
			if strings.Contains(first, "Host") || !strings.Contains(done[config], before[min(3, len(before)):]) {
				t.Errorf("the configuration is %q", done[config])
			}
			own := done[filepath.Join(ssh, "sandgate.conf")]
			for _, want := range []string{"Host gw\n    HostName 127.0.0.1\n    Port 2222\n    User sandgate\n", "Host sbx_* dev", "ProxyJump gw", "HostKeyAlias sandgate-gw"} {
				if !strings.Contains(own, want) {
					t.Errorf("%q is not in %q", want, own)
				}
			}
			if has := strings.Contains(own, " taken"); has == strings.Contains(before, "Host taken") {
				t.Errorf("a host of the user's and a sandbox of one name: %q", own)
			}
			if r := c.atHome(home, "config-ssh"); r.code != 0 || !strings.Contains(r.stderr, "nothing has to change") || !same(filesBelow(t, home), done) {
				t.Errorf("the second time: %d, %q", r.code, r.stderr)
			}
			if r := c.atHome(home, "config-ssh", "--remove"); r.code != 0 || !same(filesBelow(t, home), start) {
				t.Errorf("--remove: %d, %q, %v; want %v", r.code, r.stderr, filesBelow(t, home), start)
			}
			if r := c.atHome(home, "config-ssh", "--remove"); r.code != 0 || !same(filesBelow(t, home), start) {
				t.Errorf("--remove again: %d, %q", r.code, r.stderr)
			}
		})
	}
}

// A linked configuration stays linked; what the user changed meanwhile stays.
func TestConfigSSHLinked(t *testing.T) {
	c := newTerminalless(t)
	home, dotfiles := t.TempDir(), t.TempDir()
	real := filepath.Join(dotfiles, "ssh_config")
	config := filepath.Join(home, ".ssh", "config")
	if err := os.WriteFile(real, []byte("Host a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, config); err != nil {
		t.Fatal(err)
	}
	if r := c.atHome(home, "config-ssh", "--host-alias", "box"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if to, err := os.Readlink(config); err != nil || to != real {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	// The lines are moved to where they do not count, and put back.
	text, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	moved := "Host a\nInclude sandgate.conf\n\nHost b\n"
	if !strings.HasSuffix(string(text), "Include sandgate.conf\n\nHost a\n") {
		t.Errorf("the configuration is %q", text)
	}
	if err := os.WriteFile(real, []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	r := c.atHome(home, "config-ssh", "--json")
	var out struct {
		Changed bool
		Files   []struct{ Path, Action string }
		Hosts   []string
	}
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || !out.Changed || len(out.Hosts) < 2 || out.Hosts[0] != "gw" {
		t.Errorf("--json: %q, %v", r.stdout, err)
	}
	if r := c.atHome(home, "config-ssh", "--remove"); r.code != 0 {
		t.Error(r.stderr)
	}
	if text, err := os.ReadFile(real); err != nil || string(text) != "Host a\nHost b\n" {
		t.Errorf("in the end it is %q, %v", text, err)
	}
}

// OpenSSH reads what is written as it is meant.
func TestConfigSSHParses(t *testing.T) {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("the OpenSSH client is not installed")
	}
	c := newTerminalless(t)
	c.ok("create", "--name", "dev")
	dir := filepath.Join(t.TempDir(), "with a space")
	config := filepath.Join(dir, "config")
	if r := c.run(nil, atHome(t.TempDir()), "config-ssh", "--file", config); r.code != 0 {
		t.Fatal(r.stderr)
	}
	for host, want := range map[string][]string{
		"gw":               {"hostname 127.0.0.1", "port 2222", "user sandgate", "hostkeyalias sandgate-gw", "serveraliveinterval 15", "checkhostip no"},
		"sbx_4k2m7qa3bc5d": {"hostname sbx_4k2m7qa3bc5d", "proxyjump gw", "hostkeyalias sandgate-gw", "sendenv LC_*", "sendenv COLORTERM", "forwardagent no"},
		"dev":              {"hostname dev", "port 22", "proxyjump gw", "userknownhostsfile " + dir + "/sandgate_known_hosts"},
	} {
		out, err := exec.Command(ssh, "-F", config, "-G", host).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v, %s", host, err, out)
		}
		for _, line := range want {
			if !strings.Contains("\n"+string(out), "\n"+line+"\n") {
				t.Errorf("ssh -G %s does not say %q:\n%s", host, line, out)
			}
		}
	}
	// Another host is as it was.
	if out, _ := exec.Command(ssh, "-F", config, "-G", "example.com").Output(); strings.Contains(string(out), "proxyjump") || strings.Contains(string(out), "hostkeyalias") {
		t.Errorf("example.com: %s", out)
	}
	// Through the gateway it is printed.
	if out := c.ok("config-ssh"); !strings.Contains(out, "Host sbx_* dev\n    ProxyJump gw\n") || strings.Contains(out, "KnownHosts") {
		t.Errorf("printed: %q", out)
	}
	if r := c.atHome(t.TempDir(), "config-ssh", "--host-alias", "a b"); r.code != exitUsage {
		t.Errorf("a bad alias: %d, %q", r.code, r.stderr)
	}
}

// What is carried over from the way the user's ssh reaches the gateway, and
// how paths are written for Windows.
func TestConfigSSHText(t *testing.T) {
	h := sshHosts{alias: "gw", host: "gw.example", port: "22", carried: []string{`IdentityFile "C:/Users/A B/key"`, "ProxyJump bastion"}, identity: []string{`IdentityFile "C:/Users/A B/key"`}}
	text := h.text()
	if strings.Count(text, "IdentityFile") != 2 || strings.Count(text, "ProxyJump") != 2 || !strings.Contains(text, "HostKeyAlias gw.example\n") || strings.Contains(text, "ControlMaster") {
		t.Errorf("got %q", text)
	}
	for path, want := range map[string]string{`C:\Users\A B\.ssh\x`: `"C:/Users/A B/.ssh/x"`, `C:\x%y`: "C:/x%%y"} {
		if got := sshPath(path, "windows"); got != want {
			t.Errorf("%q is written %q, want %q", path, got, want)
		}
	}
	known, err := knownHostsText("gw", []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExUL5amRyJAG5kzr1mgqkS8Y2stE40RPo3XDaSsQgfx\n"})
	if err != nil || string(known) != "gw ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExUL5amRyJAG5kzr1mgqkS8Y2stE40RPo3XDaSsQgfx\n" {
		t.Errorf("%q, %v", known, err)
	}
	if _, err := knownHostsText("gw", []string{"nonsense"}); err == nil {
		t.Error("nonsense was taken for a key")
	}
}
