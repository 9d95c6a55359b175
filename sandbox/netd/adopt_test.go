package netd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// A container has a namespace that its engine made, and a new one at every
// start.
func TestAdopt(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	container := w.namespace(dir, "first")
	must(t, w.client.SetPolicy(t.Context(), "sbx-c", []string{"site.test:7"}))
	g := &guest{t, w, "sbx-c", container}
	must(t, w.client.Adopt(t.Context(), "sbx-c", container))
	must(t, w.client.Adopt(t.Context(), "sbx-c", container))
	addr := g.at("site.test", 7)
	c := g.mustOpen("site.test", 7)
	goesOn(t, c)

	w.takeover()
	goesOn(t, c)
	must(t, w.client.Adopt(t.Context(), "sbx-c", container))
	goesOn(t, c)

	g.ns = w.namespace(dir, "second")
	must(t, w.client.Adopt(t.Context(), "sbx-c", g.ns))
	if now := g.at("site.test", 7); now != addr {
		t.Errorf("after a start the name means %s, and was %s", now, addr)
	}
	goesOn(t, g.mustOpen("site.test", 7))
	if _, err := (&guest{t, w, "sbx-c", container}).dial("tcp", addr); err == nil {
		t.Error("the namespace of the first start is still connected")
	}

	w.kill()
	w.start()
	goesOn(t, g.mustOpen("site.test", 7))
	must(t, w.client.Adopt(t.Context(), "sbx-c", g.ns))
	goesOn(t, g.mustOpen("site.test", 7))

	must(t, w.client.Detach(t.Context(), "sbx-c"))
	if err := within(g.ns, flushAddresses); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("the interface is still there: %v", err)
	}
}

func TestAdoptRefuses(t *testing.T) {
	w := newWorld(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	defer file.Close()
	mount, err := os.Open("/proc/self/ns/mnt")
	must(t, err)
	defer mount.Close()
	own := w.namespace(t.TempDir(), "own")
	must(t, within(own, func() error { return addDummyPair() }))
	for what, f := range map[string]*os.File{"a file": file, "a mount namespace": mount, "the host's": w.host} {
		if err := w.client.Adopt(t.Context(), "sbx-bad", f); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := w.client.Adopt(t.Context(), "sbx-bad", own); !fault.Is(err, fault.State) {
		t.Errorf("a namespace with an interface of its own: %v", err)
	}
	for _, id := range []string{"", "../x", "A", strings.Repeat("a", 64), "a/b"} {
		if _, err := w.client.Attach(t.Context(), id); !fault.Is(err, fault.Invalid) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	if err := w.client.SetPolicy(t.Context(), "sbx-bad", []string{"no rule!"}); !fault.Is(err, fault.Invalid) || fault.From(err).Field != "allow" {
		t.Errorf("a malformed rule: %v", err)
	}
	if _, _, err := w.client.Traffic(t.Context(), "sbx-none"); !fault.Is(err, fault.NotFound) {
		t.Errorf("traffic of nobody: %v", err)
	}
}

func TestLeftovers(t *testing.T) {
	w := newWorld(t)
	w.sandbox("sbx-known", nil)
	w.sandbox("sbx-gone", nil)
	ns, err := makeNamespace(folder(w.dir).sandbox("sbx-stray"))
	must(t, err)
	ns.Close()
	must(t, os.WriteFile(folder(w.dir).record("sbx-torn"), []byte("{"), 0o600))
	want := "network of sbx-gone|network namespace sbx-stray.s|network record sbx-torn"
	for _, fix := range []bool{false, true} {
		lines, err := w.client.Leftovers(t.Context(), []string{"sbx-known"}, fix)
		if got := strings.Join(lines, "|"); err != nil || got != want {
			t.Errorf("fix %v: %s, %v", fix, got, err)
		}
	}
	if lines, err := w.client.Leftovers(t.Context(), []string{"sbx-known"}, false); err != nil || len(lines) > 0 {
		t.Errorf("after the cleaning: %q %v", lines, err)
	}
}

// Somebody else on this host gets no answer, even where the folder lets them in.
func TestStrangersAreRefused(t *testing.T) {
	w := newWorld(t)
	must(t, os.Chmod(filepath.Dir(w.dir), 0o755))
	must(t, os.Chmod(w.dir, 0o755))
	must(t, os.Chmod(folder(w.dir).socket(), 0o666))
	err := onThread(func() error {
		// Of this thread alone, and it ends here.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 64321, 64321, 64321); errno != 0 {
			return errno
		}
		c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(c)
		if err := unix.Connect(c, &unix.SockaddrUnix{Name: folder(w.dir).socket()}); err != nil {
			return err
		}
		q := "\x00\x00\x00\x0f{\"call\":\"list\"}"
		if _, err := unix.Write(c, []byte(q)); err != nil {
			return nil // closed already
		}
		b := make([]byte, 256)
		if n, _ := unix.Read(c, b); n > 0 {
			t.Errorf("a stranger is told %q", b[:n])
		}
		return nil
	})
	must(t, err)
	if _, err := w.client.List(t.Context()); err != nil {
		t.Error(err)
	}
}
