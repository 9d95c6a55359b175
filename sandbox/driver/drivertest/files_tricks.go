package drivertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// writeMany writes many small files into directories of a hundred.
func writeMany(t testing.TB, dir string, count int) {
	t.Helper()
	for i := range count {
		sub := filepath.Join(dir, fmt.Sprint(i%100))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), fmt.Appendf(nil, "content of %d", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// contents digests the names, modes and contents of a tree.
func contents(t testing.TB, root string) string {
	t.Helper()
	h := sha256.New()
	if err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(h, strings.TrimPrefix(path, root), info.Mode())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			h.Write(b)
			return err
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fileVerbs are the operations on one path that destroy nothing of value.
var fileVerbs = map[string]func(c context.Context, conn *guest.Conn, path string, out io.Writer) error{
	"stat": func(c context.Context, conn *guest.Conn, path string, out io.Writer) error {
		info, err := conn.Stat(c, path, guest.StatOptions{})
		if info.Type == guest.TypeLink {
			_, _ = io.WriteString(out, info.Target)
		}
		return err
	},
	"read": func(c context.Context, conn *guest.Conn, path string, out io.Writer) error {
		f, err := conn.OpenFile(c, path, guest.ReadOptions{Length: 100})
		if err == nil {
			defer f.Close()
			_, err = io.Copy(out, f)
		}
		return err
	},
	"append": func(c context.Context, conn *guest.Conn, path string, _ io.Writer) error {
		_, err := conn.PutFile(c, path, guest.WriteOptions{Append: true}, strings.NewReader("from the sandbox"))
		return err
	},
	"write": func(c context.Context, conn *guest.Conn, path string, _ io.Writer) error {
		_, err := conn.PutFile(c, path, guest.WriteOptions{}, strings.NewReader("from the sandbox"))
		return err
	},
	"list": func(c context.Context, conn *guest.Conn, path string, out io.Writer) error {
		_, err := conn.ListFiles(c, path, guest.ListOptions{}, func(f guest.FileInfo) error {
			_, err := io.WriteString(out, f.Path+"\n")
			return err
		})
		return err
	},
	"mkdir": func(c context.Context, conn *guest.Conn, path string, _ io.Writer) error {
		_, err := conn.Mkdir(c, path+"/made", guest.MkdirOptions{})
		return err
	},
	"rename": func(c context.Context, conn *guest.Conn, path string, _ io.Writer) error {
		return conn.Rename(c, path+"/none", "x", "")
	},
	"chmod": func(c context.Context, conn *guest.Conn, path string, _ io.Writer) error {
		return conn.Chmod(c, path+"/none", 0o777, "")
	},
	"remove": func(c context.Context, conn *guest.Conn, path string, _ io.Writer) error {
		_, err := conn.RemoveFile(c, path+"/none", "")
		return err
	},
	"rmdir": func(c context.Context, conn *guest.Conn, path string, _ io.Writer) error {
		_, err := conn.RemoveDir(c, path+"/none", guest.RemoveDirOptions{Recursive: true})
		return err
	},
	"download": func(c context.Context, conn *guest.Conn, path string, out io.Writer) error {
		_, err := conn.Download(c, path+"/none", guest.Tar, "", out)
		return err
	},
	"upload": func(c context.Context, conn *guest.Conn, path string, _ io.Writer) error {
		_, err := conn.Upload(c, path+"/none/none", guest.UploadOptions{Format: guest.Tar}, strings.NewReader("x"))
		return err
	},
}

// testPathTricks tries paths of every kind in every verb: none reaches the host,
// none makes the guest wait, and each refusal is one line.
func testPathTricks(t *testing.T, e *env) {
	secret := t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "secret-of-the-host"), []byte(secretValue), 0o666); err != nil {
		t.Fatal(err)
	}
	before := contents(t, secret)
	b := e.boot(t)
	b.sh(t, `ln -s / root; ln -s loop loop; ln -s none dangling; mkfifo pipe; ln -s pipe pipelink; ln -s /proc/self/fd fds; : >file; ln -s `+secret+` host`)
	host := filepath.Join(secret, "secret-of-the-host")
	paths := []string{
		"root/root", "../../../..", "/proc/1/root", "/proc/self/root", "/proc/self/cwd", "/proc/self/exe", "/proc/self/fd", "/proc/self/fd/0", "/proc/self/fd/1",
		"/proc/self/fd/3", "/proc/self/fd/7", "/proc/1/mem", "/proc/kmsg", "fds/5", "loop", "loop/x", "dangling/x", "pipe", "pipe/x", "pipelink", "/dev/null",
		"/dev/zero", "/dev/tty", "/dev/ptmx", "/dev/.sandgate.sock", "file/x", "", "//", "a\x00b", strings.Repeat("x", 300), strings.Repeat("x/", 2047),
		strings.Repeat("x", 1<<20-200), strings.Repeat("../", 1300), "\xff\xfe", "host", "host/secret-of-the-host",
	}
	for _, prefix := range []string{"", "/proc/1/root", "/proc/self/root", strings.Repeat("../", 40), "root", "/proc/1/cwd/../../..", "/proc/self/fd/0/../..", "/proc/self/fd/5"} {
		paths = append(paths, prefix+host)
	}
	for _, path := range paths {
		for verb, do := range fileVerbs {
			var out bytes.Buffer
			err := do(ctx(t), b.conn, path, &out)
			if strings.Contains(out.String(), secretValue) || strings.Contains(out.String(), "secret-of-the-host\n") {
				t.Errorf("%s %.80q reaches the host", verb, path)
			}
			if err == nil {
				continue
			}
			if f := fault.From(err); f.Code == fault.Timeout || f.Code == fault.Unavailable || !oneLine(err.Error()) || len(err.Error()) > 1100 {
				t.Errorf("%s %.80q: %s %.1200q", verb, path, f.Code, err)
			}
		}
	}
	b.ping(t)
	if contents(t, secret) != before {
		t.Error("what the host has was changed")
	}
	_, err := b.conn.RemoveDir(ctx(t), "/", guest.RemoveDirOptions{Recursive: true})
	wantCode(t, err, fault.Invalid)
	// A link in the place of what is removed is what is removed.
	if found, err := b.conn.RemoveFile(ctx(t), "host", ""); !found || err != nil {
		t.Errorf("%v %v", found, err)
	}
	if got := b.sh(t, "ls -d /bin/sh /etc/passwd && echo fine >/dev/null"); got != "/bin/sh\n/etc/passwd" {
		t.Errorf("%q", got)
	}
}

// testSwapped holds that a file goes where its directory was when it was begun.
func testSwapped(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "mkdir dir && cp /etc/passwd /before")
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() {
		_, err := b.conn.PutFile(ctx(t), "dir/passwd", guest.WriteOptions{}, r)
		result <- err
	}()
	if _, err := w.Write(bytes.Repeat([]byte("evil"), 100_000)); err != nil {
		t.Fatal(err)
	}
	b.until(t, "the guest has begun", "ls -A dir | grep -q sandgate")
	b.sh(t, "mv dir moved && ln -s /etc dir")
	w.Close()
	if err := <-result; err != nil {
		t.Error(err)
	}
	if got := b.sh(t, "cmp /etc/passwd /before && stat -c %s moved/passwd"); got != "400000" {
		t.Errorf("%q", got)
	}
}

// testDeepFiles holds that a tree that no path can name does not harm the guest.
func testDeepFiles(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, `p=$(printf 'dd/%.0s' $(seq 200)); mkdir -p deep; i=0
		while [ $i -lt 50 ]; do mkdir -p next/$p && mv deep next/$p && mv next deep || exit 1; i=$((i+1)); done`)
	seen := 0
	l, err := b.conn.ListFiles(ctx(t), "deep", guest.ListOptions{Recursive: true}, func(guest.FileInfo) error { seen++; return nil })
	if err != nil || l.Skipped != 1 || seen < 1300 {
		t.Errorf("listed %d, %+v %v", seen, l, err)
	}
	if done, err := b.conn.Download(ctx(t), "deep", guest.TarGz, "", io.Discard); err != nil || done.Skipped != 1 {
		t.Errorf("%+v %v", done, err)
	}
	if found, err := b.conn.RemoveDir(ctx(t), "deep", guest.RemoveDirOptions{Recursive: true}); !found || err != nil {
		t.Errorf("%v %v", found, err)
	}
	b.refuses(t, "ls deep")
}

// testFullDisk holds that what does not fit leaves nothing behind.
func testFullDisk(t *testing.T, e *env) {
	e.need(t, driver.FeatureDiskLimit)
	b := e.boot(t, func(s *driver.Spec) { s.Limits.DiskBytes = 32 << 20 })
	c := ctx(t)
	big := io.LimitReader(&repeated{block: []byte("does not fit")}, 64<<20)
	_, err := b.conn.PutFile(c, "big", guest.WriteOptions{}, big)
	wantCode(t, err, fault.Exhausted)
	from := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(from, name), make([]byte, 20<<20), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	done, err := b.conn.CopyIn(c, from, "tree", guest.UploadOptions{})
	wantCode(t, err, fault.Exhausted)
	if done.Files > 1 {
		t.Errorf("%+v", done)
	}
	left := strings.Fields(b.sh(t, "ls -A . tree"))
	if slices.ContainsFunc(left, func(name string) bool { return strings.HasPrefix(name, ".sandgate") || name == "big" }) {
		t.Errorf("left behind: %q", left)
	}
	if _, err := b.conn.PutFile(c, "small", guest.WriteOptions{}, strings.NewReader("fits")); err != nil {
		t.Error(err)
	}
}
