package image

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// bootstrapCatalog is a catalog whose mmdebstrap is a script. Only root tests
// use it: other users need ranges of ids that the test machine may not have.
func bootstrapCatalog(t *testing.T, cfg Config, script string) *Catalog {
	t.Helper()
	need(t, "root", os.Geteuid() == 0, "without root mmdebstrap needs a range of user ids")
	cfg.Mmdebstrap = fakeTool(t, script)
	if cfg.Mirror == "" {
		cfg.Mirror = fakeMirror(t, stable)
	}
	if cfg.Scratch == "" {
		cfg.Scratch = t.TempDir()
	}
	return newCatalog(t, cfg)
}

func TestBaseFromPackages(t *testing.T) {
	args := filepath.Join(t.TempDir(), "args")
	root := writeTar(t, minimalRoot(file("etc/hostname", "builder"), file("etc/resolv.conf", "nameserver 10.0.0.1"), file("etc/.wh.kept", "x"))...)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("http_proxy", "")
	c := bootstrapCatalog(t, Config{Mirror: fakeMirror(t, map[string]string{"stable": "trixie", "trixie-updates": "trixie-updates"})}, `
(printf '%s\n' "$@"; env; pwd) >`+args+`
echo "I: chroot architecture amd64 is equal" >&2
echo "I: downloading packages with apt..." >&2
printf 'W: odd \033[31mred\007\n' >&2
printf 'I: \033]0;title\007installing\r' >&2
cat `+root+`
`)
	var progress progressLog
	rt, rootfs, err := c.Provide(context.Background(), "base:latest", progress.say)
	if err != nil {
		t.Fatal(err)
	}
	if rt.Source != "debian bootstrap trixie" {
		t.Errorf("source = %q", rt.Source)
	}
	got := tree(t, rootfs.Layers[0])
	if got["etc/hostname"] != "" || got["etc/resolv.conf"] != "" {
		t.Errorf("names of the building machine stayed: %q, %q", got["etc/hostname"], got["etc/resolv.conf"])
	}
	if got["etc/.wh.kept"] != "x" {
		t.Error("a package's file was taken for a whiteout")
	}
	data, err := os.ReadFile(args)
	if err != nil {
		t.Fatal(err)
	}
	told := string(data)
	for _, want := range []string{
		"--mode=root\n", "--variant=minbase\n", "--format=tar\n", "--include=ca-certificates,", "\ntrixie\n-\n",
		"deb " + c.cfg.Mirror + " trixie main\n", "deb " + c.cfg.Mirror + " trixie-updates main\n", "SOURCE_DATE_EPOCH=1757149200\n", "TMPDIR=" + c.cfg.Scratch + "/",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("mmdebstrap was not told %q:\n%s", want, told)
		}
	}
	for _, not := range []string{secret, "trixie-security"} {
		if strings.Contains(told, not) {
			t.Errorf("mmdebstrap was told %q", not)
		}
	}
	text := progress.text()
	for _, want := range []string{"bootstrapping Debian trixie from " + c.cfg.Mirror, "downloading packages with apt...", "]0;titleinstalling", "base:latest is ready: debian bootstrap trixie"} {
		if !strings.Contains(text, want) {
			t.Errorf("progress lacks %q:\n%s", want, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\x07\r") || strings.Contains(text, "architecture") {
		t.Errorf("progress is not fit for a terminal: %q", text)
	}
	if entries, _ := os.ReadDir(c.cfg.Scratch); len(entries) != 0 {
		t.Errorf("scratch was left: %v", entries)
	}
	layers, err := c.Layers(context.Background())
	if err != nil || len(layers) != 1 || layers[0].SourceDigest != "release of 2025-09-06" || layers[0].Mirror != c.cfg.Mirror {
		t.Errorf("Layers = %+v, %v", layers, err)
	}
}

// Whatever is open in the server, the tool has the standard streams alone.
func TestBootstrapInheritsNothing(t *testing.T) {
	for range 8 {
		var pipe [2]int
		if err := unix.Pipe(pipe[:]); err != nil { // inheritable, on purpose
			t.Fatal(err)
		}
		defer unix.Close(pipe[0])
		defer unix.Close(pipe[1])
	}
	list := filepath.Join(t.TempDir(), "list")
	c := bootstrapCatalog(t, Config{}, "ls /proc/self/fd >"+list+"; cat "+writeTar(t, minimalRoot()...))
	if _, _, err := c.Provide(t.Context(), "base", nil); err != nil {
		t.Fatal(err)
	}
	// The fourth is the directory that ls reads.
	if data, err := os.ReadFile(list); err != nil || string(data) != "0\n1\n2\n3\n" {
		t.Errorf("the tool has the files %q, %v", data, err)
	}
}

func TestBootstrapFailures(t *testing.T) {
	root := writeTar(t, minimalRoot(file("big", strings.Repeat("x", 100_000)))...)
	tests := []struct {
		name, script string
		cfg          Config
		code         fault.Code
		want         string
	}{
		{name: "a bad exit", script: `echo "I: working" >&2; echo "E: no route to mirror" >&2; echo "I: removing" >&2; exit 25`, code: fault.Unavailable, want: "could not make Debian trixie (no route to mirror)"},
		{name: "a bad exit after all of it", script: "cat " + root + "; echo 'E: late' >&2; exit 1", code: fault.Unavailable, want: "(late)"},
		{name: "half of it", script: "head -c 50000 " + root + "; echo 'E: broken pipe' >&2; exit 1", code: fault.Unavailable, want: "(broken pipe)"},
		{name: "half of it and success", script: "head -c 50000 " + root, code: fault.Unavailable, want: "could not make Debian trixie (it ended with: "},
		{name: "an archive that reaches out", script: "cat " + writeTar(t, file("../x", "")), code: fault.Unavailable, want: "(it ended with: unpack"},
		{name: "nothing", script: "exit 0", code: fault.Unavailable, want: "(the result has no /bin/sh)"},
		{name: "its disk full", script: `echo "E: tar: No space left on device" >&2; exit 1`, code: fault.Exhausted, want: "the disk is full"},
		{name: "no such suite", cfg: Config{Mirror: "empty"}, script: "exit 0", code: fault.Unavailable, want: "does not answer for stable, and"},
		{name: "a dead mirror", cfg: Config{Mirror: "http://127.0.0.1:1/debian"}, script: "exit 0", code: fault.Unavailable, want: "the Debian mirror http://127.0.0.1:1/debian does not answer"},
		{name: "too slow", cfg: Config{BuildTimeout: 50 * time.Millisecond}, script: "sleep 600", code: fault.Timeout, want: "took longer than 50ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := tt.cfg
			cfg.HostRoot = t.TempDir() // no suite of its own to fall back to
			if cfg.Mirror == "empty" {
				cfg.Mirror = fakeMirror(t, nil)
			}
			c := bootstrapCatalog(t, cfg, tt.script)
			_, _, err := c.Provide(context.Background(), "base", nil)
			want := strings.TrimSuffix(tt.want, ", and")
			if fault.CodeOf(err) != tt.code || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error = %v (%s), want %s and %q", err, fault.CodeOf(err), tt.code, want)
			}
			assertNothingMade(t, c)
		})
	}
}

func TestMissingMmdebstrap(t *testing.T) {
	c := newCatalog(t, Config{Mmdebstrap: "no-such-mmdebstrap"})
	_, _, err := c.Provide(context.Background(), "base", nil)
	want := "base:latest cannot be made here: mmdebstrap is not installed; run apt-get install mmdebstrap, or use --runtime host:latest"
	if !fault.Is(err, fault.Unavailable) || err.Error() != want {
		t.Errorf("error = %v\nwant    %s", err, want)
	}
	assertNothingMade(t, c)
}

// Without the keys of stable, a Debian host bootstraps its own suite.
func TestBootstrapFallsBackToTheHostsSuite(t *testing.T) {
	root := writeTar(t, minimalRoot()...)
	mirror := fakeMirror(t, map[string]string{"stable": "trixie", "bookworm": "bookworm"})
	c := bootstrapCatalog(t, Config{HostRoot: fakeHost(t), Mirror: mirror}, `
for a in "$@"; do
  if [ "$a" = trixie ]; then echo "W: GPG error: NO_PUBKEY 6ED0E7B82643E131" >&2; echo "E: apt-get update failed" >&2; exit 1; fi
done
cat `+root)
	var progress progressLog
	rt, _, err := c.Provide(context.Background(), "base", progress.say)
	if err != nil {
		t.Fatal(err)
	}
	if rt.Source != "debian bootstrap bookworm" {
		t.Errorf("source = %q", rt.Source)
	}
	if want := "this machine has no key for Debian trixie; trying its own suite, bookworm"; !strings.Contains(progress.text(), want) {
		t.Errorf("progress lacks %q:\n%s", want, progress.text())
	}
}

// fifo is a pipe with a name that processes of a fake tool hold open: reading
// from it ends when the last of them is gone.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// hanging is a tool that ignores polite requests, has a child of its own, and
// writes a line when it is up.
func hanging(fifo string) string {
	return `exec 3>` + fifo + `
trap '' TERM
touch "$TMPDIR/half-made"
(exec >/dev/null 2>&1; sleep 600) &
echo up >&3
while :; do sleep 600; done
`
}

func TestCancelledBootstrap(t *testing.T) {
	pipe := fifo(t)
	c := bootstrapCatalog(t, Config{}, hanging(pipe))
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		f, err := os.Open(pipe)
		if err != nil {
			gone <- err
			return
		}
		defer f.Close()
		r := bufio.NewReader(f)
		if _, err := r.ReadString('\n'); err != nil {
			gone <- err
			return
		}
		cancel()
		_, err = io.Copy(io.Discard, r)
		gone <- err
	}()
	if _, _, err := c.Provide(ctx, "base", nil); !fault.Is(err, fault.Cancelled) {
		t.Errorf("error = %v, want code CANCELLED", err)
	}
	if err := <-gone; err != nil { // or the test times out, with a process left
		t.Error(err)
	}
	assertNothingMade(t, c)
}

// crashDir tells a test process to be the server that is killed.
const crashDir = "SANDGATE_TEST_CRASH_DIR"

// A killed server leaves no process of a bootstrap, and its next start removes
// what was half made; meanwhile a build of a living process is left alone.
func TestServerKilledWhileBootstrapping(t *testing.T) {
	if dir := os.Getenv(crashDir); dir != "" {
		c, err := New(Config{
			Dir: filepath.Join(dir, "layers"), Scratch: filepath.Join(dir, "scratch"), BaseImage: NoImage,
			Mmdebstrap: filepath.Join(dir, "tool"), Mirror: os.Getenv("SANDGATE_TEST_MIRROR"),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = c.Provide(context.Background(), "base", nil)
		t.Fatalf("Provide returned: %v", err)
	}
	need(t, "root", os.Geteuid() == 0, "without root mmdebstrap needs a range of user ids")
	dir := t.TempDir()
	pipe := fifo(t)
	if err := os.Mkdir(filepath.Join(dir, "scratch"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\n"+hanging(pipe)), 0o755); err != nil {
		t.Fatal(err)
	}
	server := exec.Command("/proc/self/exe", "-test.run=^TestServerKilledWhileBootstrapping$")
	server.Env = append(os.Environ(), crashDir+"="+dir, "SANDGATE_TEST_MIRROR="+fakeMirror(t, stable))
	var out strings.Builder
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	f, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatalf("the tool did not start: %v\n%s", err, out.String())
	}

	cfg := Config{Dir: filepath.Join(dir, "layers"), Scratch: filepath.Join(dir, "scratch")}
	newCatalog(t, cfg)
	if left := builds(t, cfg.Dir); len(left) != 1 {
		t.Fatalf("builds = %v while one is under way", left)
	}
	if err := server.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // ends with the last process
		t.Fatal(err)
	}
	_ = server.Wait()
	if left, _ := os.ReadDir(cfg.Scratch); len(left) != 1 {
		t.Fatalf("the killed server left %v; the test expects something to sweep", left)
	}
	assertNothingMade(t, newCatalog(t, cfg))
}

// builds lists the unfinished builds in a store.
func builds(t *testing.T, dir string) []string {
	t.Helper()
	matches, err := filepath.Glob(filepath.Join(dir, buildPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return matches
}

// onSmallDisk returns a directory on a disk of its own of the given size.
func onSmallDisk(t *testing.T, bytes int) string {
	t.Helper()
	need(t, "root", os.Geteuid() == 0, "only root can mount a small disk")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.Itoa(bytes)); err != nil {
		need(t, "mount", false, err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

func TestFullDisk(t *testing.T) {
	big := minimalRoot(file("big", strings.Repeat("x", 3<<20)))
	t.Run("image", func(t *testing.T) {
		c := newCatalog(t, Config{Dir: filepath.Join(onSmallDisk(t, 1<<20), "layers"), BaseImage: serveImage(t, nil, tarOf(t, big...))})
		_, _, err := c.Provide(context.Background(), "base", nil)
		if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("error = %v, want code EXHAUSTED", err)
		}
		assertNothingMade(t, c)
		c.Close()
	})
	t.Run("packages", func(t *testing.T) {
		c := bootstrapCatalog(t, Config{Dir: filepath.Join(onSmallDisk(t, 1<<20), "layers")}, "cat "+writeTar(t, big...))
		_, _, err := c.Provide(context.Background(), "base", nil)
		if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("error = %v, want code EXHAUSTED", err)
		}
		assertNothingMade(t, c)
		c.Close()
	})
	t.Run("host", func(t *testing.T) {
		c := newCatalog(t, Config{Dir: filepath.Join(onSmallDisk(t, 64<<10), "layers"), HostRoot: fakeHost(t)})
		if err := os.WriteFile(filepath.Join(c.cfg.Dir, "empty", "fill"), make([]byte, 40<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := c.Provide(context.Background(), "host", nil)
		if !fault.Is(err, fault.Exhausted) {
			t.Errorf("error = %v, want code EXHAUSTED", err)
		}
		assertNothingMade(t, c)
		c.Close()
	})
}
