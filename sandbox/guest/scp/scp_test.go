package scp

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// run runs scp with all that its peer will ever say.
func run(t testing.TB, peer string, args ...string) (status int, said, errs string) {
	t.Helper()
	umask := syscall.Umask(0o022)
	defer syscall.Umask(umask)
	var out, stderr bytes.Buffer
	status = Run(args, strings.NewReader(peer), &out, &stderr)
	return status, out.String(), stderr.String()
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestSink(t *testing.T) {
	t.Chdir(t.TempDir())
	peer := "C0640 3 a\nabc\x00" + "D0755 0 sub\n" + "T1000000000 5 1000000001 0\nC0444 2 b\nxy\x00" + "D0700 0 deep\nE\n" + "E\n" + "C0755 0 empty\n\x00"
	status, said, errs := run(t, peer, "-r", "-p", "-v", "-t", "--", ".")
	if status != 0 || strings.Trim(said, "\x00") != "" || errs != "" {
		t.Fatalf("%d %q %q", status, said, errs)
	}
	for path, want := range map[string]os.FileMode{
		"a": 0o640, "sub": os.ModeDir | 0o755, "sub/b": 0o444, "sub/deep": os.ModeDir | 0o700, "empty": 0o755,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v (%v)", path, info.Mode(), want, err)
		}
	}
	if content(t, "a") != "abc" || content(t, "sub/b") != "xy" {
		t.Error("the content is another")
	}
	if info, err := os.Stat("sub/b"); err != nil || !info.ModTime().Equal(time.Unix(1_000_000_000, 5000)) {
		t.Errorf("%v %v", info.ModTime(), err)
	}
}

// A shorter file replaces a longer one, which keeps its mode without -p.
func TestSinkReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("long content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, said, _ := run(t, "C0777 2 other\nok\x00", "-t", path); status != 0 {
		t.Fatalf("%d %q", status, said)
	}
	info, err := os.Stat(path)
	if content(t, path) != "ok" || err != nil || info.Mode() != 0o600 {
		t.Errorf("%q %v", content(t, path), info.Mode())
	}
	// The umask counts for new files without -p.
	if status, _, _ := run(t, "C0666 2 new\nok\x00", "-t", dir); status != 0 {
		t.Fatal(status)
	}
	if info, err := os.Stat(filepath.Join(dir, "new")); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// A client that is not one gets nothing written but what it may.
func TestSinkHostile(t *testing.T) {
	for name, peer := range map[string]string{
		"a path":              "C0644 3 a/b\nabc\x00",
		"absolute":            "C0644 3 /tmp/b\nabc\x00",
		"up":                  "C0644 3 ..\nabc\x00",
		"here":                "C0644 3 .\nabc\x00",
		"no name":             "C0644 3 \nabc\x00",
		"a zero":              "C0644 3 a\x00b\nabc\x00",
		"directory up":        "D0755 0 ..\nC0644 3 a\nabc\x00E\n",
		"directory with path": "D0755 0 a/../..\nC0644 3 a\nabc\x00E\n",
		"negative":            "C0644 -1 a\nabc\x00",
		"large":               "C0644 99999999999999999999 a\nabc\x00",
		"mode":                "C9999 3 a\nabc\x00",
		"long mode":           "C00644 3 a\nabc\x00",
		"no size":             "C0644\nabc\x00",
		"times":               "T1 2 3\nC0644 3 a\nabc\x00",
		"times of the future": "T99999999999999999 0 0 0\nC0644 3 a\nabc\x00",
		"times with signs":    "T-1 0 0 0\nC0644 3 a\nabc\x00",
		"newline":             "\nC0644 3 a\nabc\x00",
		"a shell's words":     "sh: scp: not found\n",
		"endless line":        "C0644 3 " + strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inside := filepath.Join(dir, "inside")
			if err := os.Mkdir(inside, 0o700); err != nil {
				t.Fatal(err)
			}
			status, said, _ := run(t, peer, "-r", "-t", inside)
			if status != 1 || !strings.Contains(said, "\x01scp: ") {
				t.Errorf("%d %q", status, said)
			}
			for _, d := range []string{dir, inside} {
				if list, err := os.ReadDir(d); err != nil || len(list) > 1 || len(list) == 1 && list[0].Name() != "inside" {
					t.Errorf("%s has %v, %v", d, list, err)
				}
			}
		})
	}
}

func TestSinkErrors(t *testing.T) {
	dir := t.TempDir()
	if status, said, _ := run(t, "", "-d", "-t", filepath.Join(dir, "missing")); status != 1 || !strings.Contains(said, "no such file") {
		t.Errorf("-d of what is missing: %d %q", status, said)
	}
	if status, said, _ := run(t, "D0755 0 a\nE\n", "-t", dir); status != 1 || !strings.Contains(said, "without -r") {
		t.Errorf("a directory without -r: %d %q", status, said)
	}
	if status, _, errs := run(t, "C0644 30 a\nabc", "-t", dir); status != 1 || !strings.Contains(errs, "lost connection") {
		t.Errorf("cut off: %d %q", status, errs)
	}
	if status, _, _ := run(t, "\x02the source gives up\n", "-t", dir); status != 1 {
		t.Errorf("told of the end: %d", status)
	}
	// What cannot be written does not end the transfer of the others.
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	status, said, _ := run(t, "C0644 1 d\nC0644 2 b\nok\x00", "-t", dir)
	if status != 1 || !strings.Contains(said, "is a directory") || content(t, filepath.Join(dir, "b")) != "ok" {
		t.Errorf("%d %q", status, said)
	}
}

func TestSource(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("d/e", 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"a": "abc", "d/x": "x", "line\nbreak": "l"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo("pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes("a", time.Unix(20, 0), time.Unix(10, 0)); err != nil {
		t.Fatal(err)
	}
	fine := strings.Repeat("\x00", 20)
	for _, tc := range []struct {
		args         []string
		status       int
		said, notice string
	}{
		{[]string{"-fp", "a"}, 0, "T10 0 20 0\nC0644 3 a\nabc\x00", ""},
		{[]string{"-f", "a"}, 0, "C0644 3 a\nabc\x00", ""},
		{[]string{"-rf", "d"}, 0, "D0755 0 d\n", ""},
		{[]string{"-rf", "d/e///"}, 0, "D0755 0 e\nE\n", ""},
		{[]string{"-f", "d"}, 1, "", "d: not a regular file"},
		{[]string{"-f", "pipe", "a"}, 1, "C0644 3 a\nabc\x00", "pipe: not a regular file"},
		{[]string{"-f", "missing\x1b[2J", "a"}, 1, "C0644 3 a\nabc\x00", "missing?[2J: no such file or directory"},
		{[]string{"-f", "line\nbreak"}, 0, "C0644 1 line\\nbreak\nl\x00", ""},
	} {
		status, said, _ := run(t, fine, tc.args...)
		if status != tc.status || !strings.Contains(said, tc.said) || !strings.Contains(said, tc.notice) {
			t.Errorf("%q: %d %q", tc.args, status, said)
		}
	}
	// The sink refuses one file and takes the next.
	if status, said, _ := run(t, "\x00"+"\x01no\n"+"\x00\x00", "-f", "a", "d/x"); status != 1 || said != "C0644 3 a\nC0644 1 x\nx\x00" {
		t.Errorf("%d %q", status, said)
	}
	if status, said, _ := run(t, "\x00\x02no\n", "-f", "a", "d/x"); status != 1 || said != "C0644 3 a\n" {
		t.Errorf("%d %q", status, said)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b:"}, {"-t"}, {"-f"}, {"-t", "a", "b"}, {"-tf", "a"}, {"-tX", "a"}, {"-f", "--"}} {
		if status, said, errs := run(t, "", args...); status != 1 || said != "" || !strings.Contains(errs, "usage") {
			t.Errorf("%q: %d %q %q", args, status, said, errs)
		}
	}
}

// FuzzSink sends anything. Nothing is ever written but in the target.
func FuzzSink(f *testing.F) {
	f.Add("C0644 3 a\nabc\x00", true)
	f.Add("T1 2 3 4\nD0755 0 d\nC0644 1 ../x\ny\x00E\n", true)
	f.Add("D0755 0 ..\nD0755 0 ..\nC0644 1 x\ny\x00E\nE\n", false)
	f.Fuzz(func(t *testing.T, peer string, times bool) {
		dir := t.TempDir()
		inside := filepath.Join(dir, "a", "b")
		if err := os.MkdirAll(inside, 0o700); err != nil {
			t.Fatal(err)
		}
		args := []string{"-r", "-t", inside}
		if times {
			args[0] = "-rp"
		}
		_, said, _ := run(t, peer, args...)
		if strings.ContainsAny(said, "\x1b\x07") {
			t.Errorf("%q is answered with %q", peer, said)
		}
		for path, want := range map[string]int{dir: 1, filepath.Join(dir, "a"): 1} {
			if list, err := os.ReadDir(path); err != nil || len(list) != want {
				t.Errorf("%q leaves %v in %s", peer, fmt.Sprint(list), path)
			}
		}
		_ = filepath.Walk(inside, func(path string, _ os.FileInfo, _ error) error { return os.Chmod(path, 0o700) }) // to be deleted
	})
}
