package guest_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

// someTree makes files of all kinds that a copy has to keep.
func someTree(t *testing.T, dir string) {
	t.Helper()
	big := make([]byte, 3<<20+7)
	r := rand.NewChaCha8([32]byte{7})
	r.Read(big)
	past := time.Unix(1_000_000_000, 0)
	for name, content := range map[string]string{
		"big": string(big), "empty": "", "with space": "x", "quote'\"": "y", "ünï": "z", "sub/deep/file": "deep", "sub/run": "#!/bin/sh\n",
		"-dash": "dash", "star*": "star",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"sub/run": 0o755, "empty": 0o400, "sub": 0o750} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"big", "empty", "sub/deep/file"} {
		if err := os.Chtimes(filepath.Join(dir, name), past, past); err != nil {
			t.Fatal(err)
		}
	}
}

// sameTree compares two directories: names, content, modes, and with times the
// times of files.
func sameTree(t *testing.T, got, want string, times bool) {
	t.Helper()
	list := func(dir string) (lines []string) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(dir, path)
			line := fmt.Sprintf("%s %v", name, info.Mode())
			if info.Mode().IsRegular() {
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if line += fmt.Sprintf(" %d %x", len(content), content[:min(len(content), 16)]); times {
					line += " " + info.ModTime().UTC().Format(time.DateTime)
				}
			}
			if name != "." {
				lines = append(lines, line)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return lines
	}
	a, b := list(got), list(want)
	if strings.Join(a, "\n") != strings.Join(b, "\n") {
		t.Errorf("%s has\n%s\nbut %s has\n%s", got, strings.Join(a, "\n"), want, strings.Join(b, "\n"))
	}
}

// The clients of OpenSSH copy a tree there and back.
func TestCopyClients(t *testing.T) {
	for name, tc := range map[string]struct{ put, get []string }{
		"scp":        {[]string{"scp", "-S", "SSH", "-rp", "tree", "box:there"}, []string{"scp", "-S", "SSH", "-rp", "box:there", "back"}},
		"scp legacy": {[]string{"scp", "-O", "-S", "SSH", "-rp", "tree", "box:there"}, []string{"scp", "-O", "-S", "SSH", "-rp", "box:there", "back"}},
		"sftp":       {[]string{"sftp", "-S", "SSH", "-b", "-", "box", "put -Rp tree there"}, []string{"sftp", "-S", "SSH", "-b", "-", "box", "get -Rp there back"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, lending(t))
			c := s.connect(t)
			listen(t, c, guest.ListenRequest{Network: "unix"}) // for which the guest makes its directories
			env, ssh := bridged(t, c, "")
			dir := t.TempDir()
			someTree(t, filepath.Join(dir, "tree"))
			for _, args := range [][]string{tc.put, tc.get} {
				var stdin string
				if args = append([]string{}, args...); args[0] == "sftp" {
					stdin, args = args[len(args)-1]+"\n", args[:len(args)-1]
				}
				args[indexOf(args, "SSH")] = ssh
				if out, err := client(t, dir, env, stdin, args...); err != nil {
					t.Fatalf("%q: %v\n%s", args, err, out)
				}
			}
			sameTree(t, filepath.Join(s.workspace, "there"), filepath.Join(dir, "tree"), true)
			sameTree(t, filepath.Join(dir, "back"), filepath.Join(dir, "tree"), true)
		})
	}
}

func indexOf(list []string, s string) int {
	for i, e := range list {
		if e == s {
			return i
		}
	}
	return -1
}

// lending gives a sandbox the guest's own scp and no other.
func lending(t *testing.T) func(*agent.Config) {
	return func(cfg *agent.Config) {
		bin := t.TempDir() // the programs of this machine without its scp
		for _, dir := range []string{"/usr/bin", "/bin"} {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if e.Name() != guest.BuiltinSCP {
					os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(bin, e.Name()))
				}
			}
		}
		cfg.Env = []string{"PATH=" + bin}
		cfg.Runtime = filepath.Join(t.TempDir(), "run")
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cfg.Program = filepath.Join(t.TempDir(), "guest")
		if err := os.Symlink(exe, cfg.Program); err != nil {
			t.Fatal(err)
		}
	}
}
