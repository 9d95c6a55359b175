package netd

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// nobody is a user id without an account.
const nobody = 64321

// userWorld is a world whose daemon belongs to a plain user.
func userWorld(t *testing.T) *world {
	t.Helper()
	w := newMachine(t)
	tmp := filepath.Dir(w.dir)
	must(t, os.Chown(tmp, nobody, nobody))
	// The test program is where only root can go.
	self, err := os.Open("/proc/self/exe")
	must(t, err)
	defer self.Close()
	exe := filepath.Join(tmp, "netd.test")
	out, err := os.OpenFile(exe, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, self)
	must(t, err)
	must(t, out.Close())
	cmd := exec.CommandContext(t.Context(), exe, append([]string{"ensure", w.dir}, w.args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var said []byte
	must(t, within(w.host, func() error { said, _ = cmd.CombinedOutput(); return nil })) // its state is looked at below
	if strings.HasPrefix(string(said), "false user namespaces are not available") {
		t.Skipf("plain users cannot connect sandboxes here: %s", said)
	}
	if !strings.HasPrefix(string(said), "true ") || !cmd.ProcessState.Success() {
		t.Fatalf("%s", said)
	}
	w.client = NewClient(w.dir)
	t.Cleanup(w.end)
	return w
}

// userSandbox is a process of the plain user in a user and a network namespace
// of its own.
func (w *world) userSandbox(t *testing.T) *os.File {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--net", "sh", "-c", "echo ready; exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	said, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	_, err = io.ReadFull(said, make([]byte, len("ready\n")))
	must(t, err)
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	return ns
}

func TestPlainUser(t *testing.T) {
	w := userWorld(t)
	ctx := t.Context()
	if _, err := w.client.Attach(ctx, "sbx-user"); !fault.Is(err, fault.Unsupported) {
		t.Errorf("a namespace for somebody else: %v", err)
	}
	must(t, w.client.SetPolicy(ctx, "sbx-user", []string{"site.test:*", "site.test", "udp:site.test:7", "cdn-good.test"}))
	g := &guest{t, w, "sbx-user", w.userSandbox(t)}
	must(t, w.client.Adopt(ctx, g.id, g.ns))
	must(t, w.client.Adopt(ctx, g.id, g.ns))
	echo := g.mustOpen("site.test", 7)
	goesOn(t, echo)
	if got, err := g.udp(g.at("site.test", 7)); got != "hello" {
		t.Errorf("packets: %q %v", got, err)
	}
	if got, err := g.web(g.at("site.test", 443), "site.test", "site.test"); !strings.Contains(got, "sni=site.test") {
		t.Errorf("web: %q %v", got, err)
	}
	for what, do := range map[string]func() (string, error){
		"another tenant":    func() (string, error) { return g.web(g.at("cdn-good.test", 443), "cdn-evil.test", "cdn-evil.test") },
		"metadata":          func() (string, error) { return g.tcp("169.254.169.254:80", "x", 1) },
		"10/8":              func() (string, error) { return g.tcp("10.9.0.1:7", "x", 1) },
		"the host":          func() (string, error) { return g.tcp(hostAddr+":22", "x", 1) },
		"a literal":         func() (string, error) { return g.tcp("203.0.113.10:7", "x", 1) },
		"another name":      func() (string, error) { a, err := g.lookup("other.test"); return fmt.Sprint(a), err },
		"IPv6":              func() (string, error) { return g.tcp("[2001:db8::10]:7", "x", 1) },
		"packets to a port": func() (string, error) { return g.udp(g.at("site.test", 9)) },
	} {
		if got, err := do(); err == nil && got != "" {
			t.Errorf("%s: reached: %q", what, got)
		}
	}
	g.expectRefusal("169.254.169.254:80")

	// One that has the number of a namespace that is gone is another one.
	must(t, within(g.ns, func() error { return removeLink(insideName) }))
	must(t, w.client.Adopt(ctx, g.id, g.ns))
	echo = g.mustOpen("site.test", 7)
	goesOn(t, echo)

	// A new start of the sandbox is a new namespace.
	g.ns = w.userSandbox(t)
	must(t, w.client.Adopt(ctx, g.id, g.ns))
	ends(t, echo)
	again := g.mustOpen("site.test", 7)
	goesOn(t, again)
	g.policy("site.test:22")
	ends(t, again)

	// Without the daemon nothing gets out; a new one waits for the next start.
	w.kill()
	if got, _ := g.tcp("203.0.113.10:7", "hello", 5); got != "" {
		t.Error("something is reached while nobody decides")
	}
	must(t, within(w.host, func() error {
		cmd := exec.Command(filepath.Join(filepath.Dir(w.dir), "netd.test"), append([]string{"ensure", w.dir}, w.args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd.Run()
	}))
	g.ns = w.userSandbox(t)
	must(t, w.client.Adopt(ctx, g.id, g.ns))
	goesOnSSH(t, g)
	must(t, w.client.Detach(ctx, g.id))
	if got, _ := g.tcp("203.0.113.10:7", "hello", 5); got != "" {
		t.Error("something is reached after the end")
	}
}

func goesOnSSH(t *testing.T, g *guest) {
	t.Helper()
	if got, err := g.tcp(g.at("site.test", 22), "", 8); got != "SSH-2.0-" {
		t.Errorf("after a new start: %q %v", got, err)
	}
}
