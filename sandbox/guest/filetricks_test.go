package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// verbs are the operations on one path.
var verbs = map[string]func(ctx context.Context, c *guest.Conn, path string) error{
	"stat": func(ctx context.Context, c *guest.Conn, path string) error {
		_, err := c.Stat(ctx, path, guest.StatOptions{})
		return err
	},
	"read": func(ctx context.Context, c *guest.Conn, path string) error {
		f, err := c.OpenFile(ctx, path, guest.ReadOptions{Length: 100})
		if err == nil {
			_, err = io.Copy(io.Discard, f)
			f.Close()
		}
		return err
	},
	"write": func(ctx context.Context, c *guest.Conn, path string) error {
		_, err := c.PutFile(ctx, path, guest.WriteOptions{}, strings.NewReader("x"))
		return err
	},
	"append": func(ctx context.Context, c *guest.Conn, path string) error {
		_, err := c.PutFile(ctx, path, guest.WriteOptions{Append: true}, strings.NewReader("x"))
		return err
	},
	"list": func(ctx context.Context, c *guest.Conn, path string) error {
		_, err := c.ListFiles(ctx, path, guest.ListOptions{}, func(guest.FileInfo) error { return nil })
		return err
	},
	"mkdir": func(ctx context.Context, c *guest.Conn, path string) error {
		_, err := c.Mkdir(ctx, path+"/made", guest.MkdirOptions{})
		return err
	},
	"rename": func(ctx context.Context, c *guest.Conn, path string) error {
		return c.Rename(ctx, path+"/none", "/tmp/x", "")
	},
	"chmod": func(ctx context.Context, c *guest.Conn, path string) error {
		return c.Chmod(ctx, path+"/none", 0o600, "")
	},
	"remove": func(ctx context.Context, c *guest.Conn, path string) error {
		_, err := c.RemoveFile(ctx, path+"/none", "")
		return err
	},
	"rmdir": func(ctx context.Context, c *guest.Conn, path string) error {
		_, err := c.RemoveDir(ctx, path+"/none", guest.RemoveDirOptions{Recursive: true})
		return err
	},
	"download": func(ctx context.Context, c *guest.Conn, path string) error {
		_, err := c.Download(ctx, path+"/none", guest.Tar, "", io.Discard)
		return err
	},
	"upload": func(ctx context.Context, c *guest.Conn, path string) error {
		_, err := c.Upload(ctx, path+"/none/none", guest.UploadOptions{Format: guest.Tar}, strings.NewReader("x"))
		return err
	},
}

// Whatever a path leads to, no verb hangs, and the guest stays well.
func TestPID1PathTricks(t *testing.T) {
	c := startGuest(t, true).relay(t).conn
	sh := func(script string) string {
		exit, out, errs := run(t, c, guest.Command{Script: script}, nil)
		if exit.Status() != 0 {
			t.Fatalf("%s: %s%s", script, out, errs)
		}
		return strings.TrimSpace(out)
	}
	sh(`mkdir /tmp/d && cd /workspace && ln -s / root && ln -s loop loop && ln -s none dangling && mkfifo pipe && ln -s pipe pipelink &&
		ln /etc/passwd hard && mkdir -p closed/x && ln -s /proc/self/fd fds && : >file`)
	for _, path := range []string{
		"root", "root/root/root", "../../../..", "/proc/1/root", "/proc/1/root/workspace/root", "/proc/self/root", "/proc/self/cwd", "/proc/self/exe",
		"/proc/self/fd", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/5", "/proc/self/fd/7", "/proc/1/mem", "/proc/kmsg", "/proc/1/environ",
		"fds/3", "loop", "loop/x", "dangling", "dangling/x", "pipe", "pipe/x", "pipelink", "/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx", "/dev/pts/0",
		"/dev/.sandgate.sock", "file/x", "", ".", "/", "//", "a\x00b", strings.Repeat("x", 300), strings.Repeat("x/", 2047), strings.Repeat("x", 1<<20-200),
		strings.Repeat("../", 1300), "~", "$HOME", "*", "\xff\xfe",
	} {
		for verb, do := range verbs {
			err := do(testContext(t), c, path)
			switch f := fault.From(err); {
			case err == nil:
			case f.Code == fault.Internal && !strings.HasSuffix(err.Error(), "input/output error"), // which it is
				f.Code == fault.Timeout, f.Code == fault.Unavailable:
				t.Errorf("%s %.60q: %s %v", verb, path, f.Code, err)
			case strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 1100:
				t.Errorf("%s %.60q: %.1200q", verb, path, err)
			}
		}
	}
	if err := c.Ping(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got := sh("cat /etc/passwd | wc -l; ls /dev/null /proc/1/exe >/dev/null && echo there"); got != "3\nthere" {
		t.Errorf("%q", got)
	}
	if _, err := c.RemoveDir(testContext(t), "/", guest.RemoveDirOptions{Recursive: true}); !fault.Is(err, fault.Invalid) {
		t.Errorf("the root was removed: %v", err)
	}
	if _, err := c.RemoveDir(testContext(t), "/proc", guest.RemoveDirOptions{Recursive: true}); !fault.Is(err, fault.Busy) {
		t.Errorf("/proc: %v", err)
	}
}

// A file goes where its directory was when it was begun, whatever is put in
// that place meanwhile.
func TestPID1SwappedWhileWriting(t *testing.T) {
	c := startGuest(t, true).relay(t).conn
	sh := func(script string) string {
		_, out, errs := run(t, c, guest.Command{Script: script}, nil)
		return strings.TrimSpace(out + errs)
	}
	for name, swap := range map[string]string{
		"directory": "mv /workspace/dir /workspace/moved && ln -s /etc /workspace/dir",
		"file":      "ln -sf /etc/passwd /workspace/dir/passwd",
	} {
		sh("rm -rf /workspace/*; mkdir /workspace/dir; cp /etc/passwd /root-passwd")
		r, w := io.Pipe()
		result := make(chan error, 1)
		go func() {
			_, err := c.PutFile(testContext(t), "dir/passwd", guest.WriteOptions{}, r)
			result <- err
		}()
		w.Write(bytes.Repeat([]byte("evil"), 100_000)) // the guest has begun
		for sh("ls -A /workspace/dir | grep -c sandgate") == "0" {
		}
		if out := sh(swap); out != "" {
			t.Fatal(out)
		}
		w.Close()
		if err := <-result; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if out := sh("cmp /etc/passwd /root-passwd && find /workspace -name passwd -size +300k | wc -l"); out != "1" {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// Another user of the sandbox may do what that user may, and no more.
func TestPID1FilesOfUsers(t *testing.T) {
	c := startGuest(t, true).relay(t).conn
	ctx := testContext(t)
	run(t, c, guest.Command{Script: "mkdir -m 700 /private && echo secret >/private/f && mkdir -m 770 /group && chgrp audio /group && mkdir /root-only && cp /bin/true /workspace/owned && chown 1000:29 /workspace/owned && chmod 640 /workspace/owned"}, nil)
	for verb, err := range map[string]error{
		"stat":     second(c.Stat(ctx, "/private/f", guest.StatOptions{User: "dev"})),
		"read":     second(c.OpenFile(ctx, "/private/f", guest.ReadOptions{User: "dev"})),
		"list":     second(c.ListFiles(ctx, "/private", guest.ListOptions{User: "dev"}, nil)),
		"write":    second(c.PutFile(ctx, "/root-only/f", guest.WriteOptions{User: "dev"}, strings.NewReader("x"))),
		"append":   second(c.PutFile(ctx, "/etc/passwd", guest.WriteOptions{User: "dev", Append: true}, strings.NewReader("x"))),
		"mkdir":    second(c.Mkdir(ctx, "/root-only/d", guest.MkdirOptions{User: "dev"})),
		"remove":   second(c.RemoveFile(ctx, "/private/f", "dev")),
		"rmdir":    second(c.RemoveDir(ctx, "/private", guest.RemoveDirOptions{User: "dev", Recursive: true})),
		"rename":   c.Rename(ctx, "/root-only", "/workspace/mine", "dev"),
		"chmod":    c.Chmod(ctx, "/private", 0o777, "dev"),
		"download": second(c.Download(ctx, "/private/f", guest.Tar, "dev", io.Discard)),
		"upload":   second(c.Upload(ctx, "/root-only/d", guest.UploadOptions{User: "dev", Format: guest.Tar}, strings.NewReader(""))),
	} {
		if !fault.Is(err, fault.Denied) {
			t.Errorf("%s as dev: %v", verb, err)
		}
	}
	if _, err := c.PutFile(ctx, "mine/f", guest.WriteOptions{User: "dev", Parents: true}, strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	if _, err := c.PutFile(ctx, "/group/f", guest.WriteOptions{User: "dev"}, strings.NewReader("x")); err != nil {
		t.Errorf("by a group of dev: %v", err)
	}
	if _, err := c.PutFile(ctx, "owned", guest.WriteOptions{}, strings.NewReader("replaced by root")); err != nil {
		t.Error(err)
	}
	if _, err := c.Stat(ctx, "mine", guest.StatOptions{User: "nobody-knows"}); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	_, out, _ := run(t, c, guest.Command{Script: "stat -c %U:%G:%a mine mine/f /group/f owned; cat /private/f; id -u; grep -h -E '^(Uid|Groups):' /proc/1/task/*/status | sort | uniq -c | wc -l"}, nil)
	// All threads of the guest are root's afterwards: one line for each of the two facts.
	if want := "dev:dev:755\ndev:dev:644\ndev:dev:644\ndev:audio:640\nsecret\n0\n2\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func second[A any](_ A, err error) error { return err }

// A container without the right to change the user works as root.
func TestPID1FilesWithoutCapabilities(t *testing.T) {
	c := startGuest(t, true, "SANDGATE_GUEST_TEST_NO_SETUID=1").relay(t).conn
	if err := c.WriteFile(testContext(t), "f", 0o600, strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	_, err := c.Stat(testContext(t), "f", guest.StatOptions{User: "dev"})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), `switch to user "dev"`) {
		t.Error(err)
	}
}

// Trees of any depth, directories of any width and archives as they come leave
// the guest as small as it was.
func TestPID1StaysSmall(t *testing.T) {
	c := startGuest(t, true).relay(t).conn
	const build = `p=$(printf 'dd/%.0s' $(seq 500)); mkdir -p deep wide; i=0
		while [ $i -lt 20 ]; do mkdir -p next/$p && mv deep next/$p && mv next deep || exit 1; i=$((i+1)); done
		cd wide && seq 1 10000 | xargs touch`
	if exit, out, errs := run(t, c, guest.Command{Script: build}, nil); exit.Status() != 0 || out+errs != "" {
		t.Fatal(out, errs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // much is done here
	defer cancel()
	count := 0
	l, err := c.ListFiles(ctx, ".", guest.ListOptions{Recursive: true}, func(guest.FileInfo) error { count++; return nil })
	if err != nil || l.Skipped != 1 || count < 11_000 {
		t.Errorf("%d, %+v %v", count, l, err)
	}
	for _, f := range []guest.Format{guest.TarGz, guest.Zip} {
		if done, err := c.Download(ctx, ".", f, "", io.Discard); err != nil || done.Files != 10_000 || done.Skipped != 1 {
			t.Errorf("%+v %v", done, err)
		}
	}
	if found, err := c.RemoveDir(ctx, "deep", guest.RemoveDirOptions{Recursive: true}); !found || err != nil {
		t.Errorf("%v %v", found, err)
	}
	_, out, _ := run(t, c, guest.Command{Script: "ls; sed -n 's/^VmHWM:\\s*//p' /proc/1/status"}, nil)
	var kb int
	if _, err := fmt.Sscanf(out, "wide\n%d kB", &kb); err != nil || kb > 64<<10 && !raceDetector() {
		t.Errorf("%q %v", out, err)
	}
	t.Logf("the guest took at most %d KiB", kb)
}

// raceDetector reports whether this program was built with it: it takes memory.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// An older guest, which knows nothing of all this, is not even asked.
func TestOldGuest(t *testing.T) {
	c := hostileOf(t, 1, message(`{"error":{"code":"INTERNAL","message":"it was asked"}}`))
	for verb, do := range verbs {
		if verb == "read" {
			continue // without options it is as old as the guest; below
		}
		if err := do(testContext(t), c, "x"); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "older guest") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	for verb, err := range map[string]error{
		"part":  second(c.OpenFile(testContext(t), "x", guest.ReadOptions{Offset: 1})),
		"whole": second(c.OpenFile(testContext(t), "x", guest.ReadOptions{})),
		"write": c.WriteFile(testContext(t), "x", 0o600, strings.NewReader("x")),
	} {
		if asked := strings.Contains(err.Error(), "it was asked"); asked != (verb != "part") {
			t.Errorf("%s: %v", verb, err)
		}
	}
}
