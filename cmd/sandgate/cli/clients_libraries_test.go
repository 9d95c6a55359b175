package cli

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// clientLibrary is a library with which others write clients. A script of its
// language in testdata/clients tells the story with it and prints facts.
type clientLibrary struct {
	name   string
	script string
	// interpreter is what runs the script; it skips where that, or the
	// library, is missing.
	interpreter func(t *testing.T, s *stage) []string
	killed      string            // how a command ended that SIGTERM has ended
	more        map[string]string // facts that the others do not tell
}

func clientLibraries() []clientLibrary {
	return []clientLibrary{
		{name: "paramiko", script: "paramiko_story.py", interpreter: python("paramiko"), killed: "-1"},
		{
			name: "asyncssh", script: "asyncssh_story.py", interpreter: python("asyncssh"), killed: "TERM",
			more: map[string]string{"send_signal": "TERM", "many": "True"},
		},
		{name: "ssh2", script: "ssh2_story.js", interpreter: node, killed: "SIGTERM"},
	}
}

// python is the Python that Debian's packages of libraries are for, which need
// not be the first in PATH.
func python(module string) func(*testing.T, *stage) []string {
	return func(t *testing.T, s *stage) []string {
		t.Helper()
		const path = "/usr/bin/python3"
		if out, err := exec.Command(path, "-c", "import "+module).CombinedOutput(); err != nil {
			t.Skipf("needs %s for %s: %v: %s", module, path, err, lastOf(string(out)))
		}
		return []string{path, "-W", "ignore"}
	}
}

// node runs with the package that scripts/deps.sh has installed, at the
// version that the lock file names.
func node(t *testing.T, _ *stage) []string {
	t.Helper()
	needTools(t, "node")
	modules := filepath.Join(toolsFolder(t), "ssh2", "node_modules")
	lock, err := os.ReadFile("testdata/clients/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.ReadFile(filepath.Join(modules, "..", "installed.json"))
	if err != nil || string(installed) != string(lock) {
		t.Skipf("needs npm's ssh2 in %s, which scripts/deps.sh installs", modules)
	}
	return []string{"env", "NODE_PATH=" + modules, "node"}
}

// toolsFolder is where scripts/deps.sh puts what no package of the system is.
func toolsFolder(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("needs a cache folder: %v", err)
	}
	return filepath.Join(cache, "sandgate-tools")
}

// recite is the story, told by a library.
func (s *stage) recite(t *testing.T, l clientLibrary) {
	line := l.interpreter(t, s)
	port, err := strconv.Atoi(s.port)
	if err != nil {
		t.Fatal(err)
	}
	inside, _ := strconv.Atoi(insidePort)
	back, remote := filepath.Join(t.TempDir(), "back"), "/workspace/"+l.name
	options, err := json.Marshal(map[string]any{
		"host": "127.0.0.1", "port": port, "user": "box", "key": s.key, "hostKey": strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.host))),
		"bulk": s.bulk, "small": s.small, "remote": remote, "back": back, "inside": inside,
	})
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.Join("testdata/clients", l.script))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"true": "0", "exit 7": "7", "no-such-program": "127", "kill -TERM $$": l.killed,
		"streams": "0 true true", "up": s.bulkSum, "down": s.bulkSum,
		"shell": "3", "files": strconv.Itoa(smallFiles), "forward": strings.TrimSpace(insideText),
	}
	maps.Copy(want, l.more)
	got := map[string]string{}
	status, stdout, stderr := s.try(t, nil, line[0], append(line[1:], script, string(options))...)
	for text := range strings.Lines(stdout) {
		name, fact, _ := strings.Cut(strings.TrimSpace(text), "\t")
		got[name] = fact
	}
	for name, fact := range want {
		if !strings.EqualFold(got[name], fact) {
			t.Errorf("%s: %q, want %q", name, got[name], fact)
		}
	}
	if status != 0 || len(got) != len(want) {
		t.Fatalf("exit status %d, %d facts of %d: %s", status, len(got), len(want), lastOf(stderr))
	}
	if id := strings.TrimSpace(s.inside(t, treeCommand(remote)+"; rm -r "+remote)); id != s.treeID {
		t.Error("the files that arrived are not those that were sent")
	}
	if localTree(t, back) != s.treeID {
		t.Error("the files that came back are not those that were sent")
	}
}
