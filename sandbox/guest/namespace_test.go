package guest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

// enterEnv makes the test binary build a root filesystem in its new namespaces
// and become the guest there. Its value is the directory to build it on.
const enterEnv = "SANDGATE_GUEST_TEST_ROOT"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "guest" {
		os.Exit(agent.Main(os.Args[1:]))
	}
	if socket := os.Getenv(bridgeEnv); socket != "" {
		os.Exit(bridge(socket, os.Args[1:]))
	}
	if root := os.Getenv(enterEnv); root != "" {
		fmt.Fprintln(os.Stderr, enterRoot(root))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// enterRoot runs as PID 1 of new namespaces: it builds a root filesystem in
// memory that shares only programs with the host, and runs the guest on it.
func enterRoot(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount root: %w", err)
	}
	in := func(path string) string { return filepath.Join(root, path) }
	for _, dir := range []string{"/dev", "/proc", "/tmp", "/.sandgate", "/etc"} {
		if err := os.Mkdir(in(dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64"} {
		if target, err := os.Readlink(dir); err == nil {
			if err := os.Symlink(target, in(dir)); err != nil {
				return err
			}
		} else if _, err := os.Stat(dir); err == nil {
			if err := errors.Join(os.Mkdir(in(dir), 0o755), unix.Mount(dir, in(dir), "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
				return fmt.Errorf("bind %s: %w", dir, err)
			}
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(in("/.sandgate/guest"), nil, 0o755), unix.Mount(exe, in("/.sandgate/guest"), "", unix.MS_BIND, "")); err != nil {
		return fmt.Errorf("bind the guest: %w", err)
	}
	if err := errors.Join(
		os.WriteFile(in("/etc/passwd"), []byte("root:x:0:0:root:/root:/bin/bash\ndev:x:1000:1000:Dev:/home/dev:/bin/sh\nservice:x:99:99::/:/usr/sbin/nologin\n"), 0o644),
		os.WriteFile(in("/etc/group"), []byte("root:x:0:\ndev:x:1000:\naudio:x:29:dev\n"), 0o644),
	); err != nil {
		return err
	}
	if os.Getenv("SANDGATE_GUEST_TEST_PROC") != "" {
		if err := unix.Mount("proc", in("/proc"), "proc", 0, ""); err != nil {
			return fmt.Errorf("mount proc: %w", err)
		}
	}
	for name, minor := range map[string]int{"null": 3, "zero": 5} {
		if err := unix.Mknod(in("/dev/"+name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, uint32(minor)))); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
	}
	if err := errors.Join(
		os.Chmod(in("/dev/null"), 0o666),
		os.Mkdir(in("/dev/pts"), 0o755),
		unix.Mount("devpts", in("/dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620"),
		os.Symlink("pts/ptmx", in("/dev/ptmx")),
	); err != nil {
		return fmt.Errorf("mount devpts: %w", err)
	}
	if err := errors.Join(unix.Chroot(root), unix.Chdir("/")); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	if os.Getenv("SANDGATE_GUEST_TEST_NO_SETUID") != "" {
		for _, capability := range []uintptr{unix.CAP_SETUID, unix.CAP_SETGID} {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
				return fmt.Errorf("drop a capability: %w", err)
			}
		}
	}
	return syscall.Exec("/.sandgate/guest", []string{"guest", "init"}, []string{"PATH=/usr/bin:/bin", "FROM_IMAGE=yes", "GOGC=50"})
}

// realGuest is a guest that runs as PID 1.
type realGuest struct {
	pid    int
	stderr *lockedBuffer
	exited chan error
}

func startGuest(t *testing.T, withProc bool, env ...string) *realGuest {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a PID namespace with a root filesystem of its own")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), enterEnv+"="+t.TempDir()), env...)
	if withProc {
		cmd.Env = append(cmd.Env, "SANDGATE_GUEST_TEST_PROC=1")
	}
	g := &realGuest{stderr: new(lockedBuffer), exited: make(chan error, 1)}
	cmd.Stderr = g.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start PID 1: %v", err)
	}
	g.pid = cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.exited <- cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("standard error of PID 1:\n%s", g.stderr)
		}
	})
	return g
}

// relay is one connection as a driver opens it: a relay process with pipes.
type relay struct {
	conn *guest.Conn
	cmd  *exec.Cmd
	done chan struct{}
}

func (g *realGuest) relay(t *testing.T) *relay {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"guest", "relay", "-socket", fmt.Sprintf("/proc/%d/root%s", g.pid, agent.SocketPath)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, g.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start relay: %v", err)
	}
	inR.Close()
	outW.Close()
	r := &relay{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		cmd.Wait()
	}()
	r.conn, err = guest.Connect(testContext(t), pipes{outR, inW})
	if err != nil {
		t.Fatalf("connect: %v\n%s", err, g.stderr)
	}
	t.Cleanup(func() {
		r.conn.Close()
		<-r.done // ends because its stream has ended
	})
	return r
}

func (r *relay) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-r.done
	select {
	case <-r.conn.Done():
	case <-testContext(t).Done():
		t.Fatal("the connection outlives its relay")
	}
}

type pipes struct{ r, w *os.File }

func (p pipes) Read(b []byte) (int, error)  { return p.r.Read(b) }
func (p pipes) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p pipes) Close() error                { return errors.Join(p.r.Close(), p.w.Close()) }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
