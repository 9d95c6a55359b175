package cli

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/api"
)

func local(e *Env) { e.Local = true }

// put writes a file below a folder of the test.
func put(t *testing.T, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

func wantFile(t *testing.T, name, content string) {
	t.Helper()
	if b, err := os.ReadFile(name); err != nil || string(b) != content {
		t.Errorf("%s holds %q, %v; want %q", name, b, err, content)
	}
}

func TestCopyFiles(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "dev")
	dir := t.TempDir()
	script := put(t, dir, "run.sh", "#!/bin/sh\necho hi\n", 0o755)
	cp := func(args ...string) (copied, result) {
		t.Helper()
		r := c.run(nil, local, append([]string{"fs", "cp", "--json"}, args...)...)
		var got copied
		if r.code == 0 && strings.HasPrefix(r.stdout, "{") {
			if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
				t.Fatal(err)
			}
		}
		return got, r
	}
	got, r := cp(script, "dev:a/b/run.sh")
	if r.code != 0 || got.BytesTransferred != 18 || got.FilesTransferred != 1 || len(got.DirectoriesCreated) != 2 || !strings.HasSuffix(got.DirectoriesCreated[1], "/a/b") {
		t.Errorf("cp in: %+v %+v", got, r)
	}
	if out := c.ok("exec", "dev", "--", "./a/b/run.sh"); out != "hi\n" {
		t.Errorf("what was copied printed %q", out)
	}
	for _, to := range []string{"dev:a", "dev:new/", "dev:"} { // into folders
		if _, r := cp(script, to); r.code != 0 {
			t.Errorf("cp to %s: %+v", to, r)
		}
	}
	if out := c.ok("exec", "dev", "--", "sh", "-c", "cat a/run.sh new/run.sh run.sh"); out != strings.Repeat("#!/bin/sh\necho hi\n", 3) {
		t.Errorf("in folders: %q", out)
	}
	out := filepath.Join(dir, "x", "y.sh")
	if got, r := cp("dev:run.sh", out); r.code != 0 || len(got.DirectoriesCreated) != 1 {
		t.Errorf("cp out: %+v", r)
	}
	wantFile(t, out, "#!/bin/sh\necho hi\n")
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if r := c.run(strings.NewReader("from a pipe"), nil, "fs", "cp", "-", "dev:piped"); r.code != 0 {
		t.Errorf("cp from a pipe: %+v", r)
	}
	if r := c.run(nil, nil, "fs", "cp", "dev:piped", "-"); r.stdout != "from a pipe" {
		t.Errorf("cp to a pipe: %+v", r)
	}
	for _, tc := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"--strict", script, "dev:none/run.sh"}, 1, ""},
		{[]string{"--strict", "dev:run.sh", filepath.Join(dir, "none", "f")}, 1, "no folder"},
		{[]string{dir, "dev:tree"}, 2, "-r"},
		{[]string{"dev:a", dir}, 2, "-r"},
		{[]string{script, dir}, 2, "SANDBOX:PATH"},
		{[]string{"dev:a", "dev:b"}, 2, "SANDBOX:PATH"},
		{[]string{"dev:nothing", dir}, 1, "nothing"},
		{[]string{script, "nobody:f"}, 1, "nobody"},
		{[]string{filepath.Join(dir, "gone"), "dev:f"}, 1, "gone"},
		{[]string{"--timeout", "soon", script, "dev:f"}, 2, "--timeout"},
	} {
		if _, r := cp(tc.args...); r.code != tc.code || !strings.Contains(r.stderr, tc.stderr) || r.stderr == "" {
			t.Errorf("cp %q: %+v", tc.args, r)
		}
	}
	if r := c.run(nil, nil, "fs", "cp", script, "dev:f"); r.code != 2 || !strings.Contains(r.stderr, "gateway") {
		t.Errorf("a file of the gateway: %+v", r)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestCopyFolders(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "dev")
	src := t.TempDir()
	put(t, src, "a/one", "1", 0o644)
	put(t, src, "a/b/two", "22", 0o600)
	if err := os.Symlink("a/one", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	r := c.run(nil, local, "fs", "cp", "-r", src, "dev:deep/er", "--json")
	var got copied
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || got.FilesTransferred != 3 || got.BytesTransferred != 3 || len(got.DirectoriesCreated) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if out := c.ok("exec", "dev", "--", "sh", "-c", "cd deep/er; cat a/one a/b/two link"); out != "1221" {
		t.Errorf("inside: %q", out)
	}
	c.ok("exec", "dev", "--", "sh", "-c", "ln -s /etc/passwd deep/er/evil")
	to := filepath.Join(t.TempDir(), "back")
	if r := c.run(nil, local, "fs", "cp", "-r", "dev:deep/er", to); r.code != 0 || r.stdout != "copied 4 files (3B)\n" {
		t.Errorf("back: %+v", r)
	}
	wantFile(t, filepath.Join(to, "a/b/two"), "22")
	if target, err := os.Readlink(filepath.Join(to, "evil")); err != nil || target != "/etc/passwd" {
		t.Errorf("a link is a link: %q, %v", target, err)
	}
	if r := c.run(nil, local, "fs", "cp", "-r", "dev:deep/er", to+"/"); r.code != 0 {
		t.Errorf("into: %+v", r)
	}
	wantFile(t, filepath.Join(to, "er", "a/one"), "1")
}

func TestListAndRemoveFiles(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "dev")
	if out := c.ok("fs", "mkdir", "dev", "x/y", "-p"); strings.Count(out, "made ") != 2 {
		t.Errorf("mkdir printed %q", out)
	}
	c.ok("exec", "dev", "--", "sh", "-c", "printf abc >x/f; ln -s f x/l; printf x >'x/\033[31mred'")
	if out := c.ok("files", "list", "dev", "x"); out != "\uFFFD[31mred\nf\nl\ny/\n" {
		t.Errorf("ls printed %q", out)
	}
	if out := c.ok("fs", "ls", "dev", "x", "-l"); !strings.Contains(out, "0644  3B") || !strings.Contains(out, "l -> f") || !strings.Contains(out, "y/") {
		t.Errorf("ls -l printed %q", out)
	}
	var list api.FileList
	if err := json.Unmarshal([]byte(c.ok("fs", "ls", "dev", "-r", "--json")), &list); err != nil || len(list.Files) != 5 || !slices.ContainsFunc(list.Files, func(f api.FileInfo) bool { return f.Path == "x/f" && f.Size == 3 && f.Mode == "0644" }) {
		t.Errorf("ls --json: %+v, %v", list, err)
	}
	if out := c.ok("fs", "rm", "dev", "x/f"); out != "removed x/f\n" {
		t.Errorf("rm printed %q", out)
	}
	if out := c.ok("fs", "rm", "dev", "x/f", "--json"); !strings.Contains(out, `"found": false`) {
		t.Errorf("rm again printed %q", out)
	}
	for _, args := range [][]string{{"fs", "rm", "dev", "x"}, {"fs", "rmdir", "dev", "x"}, {"fs", "mkdir", "dev", "x"}, {"fs", "mkdir", "dev", "p/q"}, {"fs", "ls", "dev", "none"}} {
		if r := c.run(nil, nil, args...); r.code == 0 || r.stderr == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
	c.ok("fs", "rmdir", "dev", "x", "-r")
	if out := c.ok("fs", "ls", "dev"); out != "" {
		t.Errorf("ls printed %q", out)
	}
}

func TestArchives(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "dev")
	c.ok("exec", "dev", "--", "sh", "-c", "mkdir d; printf one >d/one; printf two >two")
	dir := t.TempDir()
	for _, format := range []string{"tar.gz", "zip", "tar"} {
		name := filepath.Join(dir, "a."+format)
		if r := c.run(nil, local, "fs", "dl", "dev", name, "--format", format); r.code != 0 || !strings.HasPrefix(r.stdout, "wrote "+name) {
			t.Fatalf("download: %+v", r)
		}
		if r := c.run(nil, local, "fs", "ul", "dev", name, "--path", "to-"+format, "--json"); r.code != 0 || !strings.Contains(r.stdout, `"files": `) {
			t.Fatalf("upload: %+v", r)
		}
		if out := c.ok("exec", "dev", "--", "cat", "to-"+format+"/d/one"); out != "one" {
			t.Errorf("%s: %q", format, out)
		}
		c.ok("fs", "rmdir", "dev", "to-"+format, "-r")
	}
	// Through pipes, as over ssh.
	r := c.run(nil, nil, "fs", "download", "dev", "-", "--path", "d")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := c.run(strings.NewReader(r.stdout), nil, "fs", "upload", "dev", "-", "--path", "piped"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if out := c.ok("exec", "dev", "--", "cat", "piped/one"); out != "one" {
		t.Errorf("piped: %q", out)
	}
	for _, tc := range []struct {
		stdin io.Reader
		args  []string
		code  int
	}{
		{strings.NewReader("no archive"), []string{"upload", "dev", "-"}, 2},
		{nil, []string{"download", "dev", "-", "--path", "none"}, 1},
		{nil, []string{"download", "dev", "-", "--format", "rar"}, 2},
		{nil, []string{"download", "dev", filepath.Join(dir, "f")}, 2},
	} {
		if r := c.run(tc.stdin, nil, append([]string{"fs"}, tc.args...)...); r.code != tc.code || r.stderr == "" || r.stdout != "" {
			t.Errorf("%q: %+v", tc.args, r)
		}
	}
}
