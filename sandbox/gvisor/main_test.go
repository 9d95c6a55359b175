package gvisor

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
	"github.com/sandgate/sandgate/sandbox/netd/netdtest"
)

func TestMain(m *testing.M) {
	if netdtest.IsDaemon() {
		netdtest.Daemon()
	}
	if dir := os.Getenv(victimVariable); dir != "" {
		runVictim(dir)
	}
	code := m.Run()
	if err := gvisortest.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// nobody is a user id without an account.
const nobody = 64321

// TestUnprivileged runs the tests of this package once more as a plain user.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the other tests run as a plain user already")
	}
	dir, err := os.MkdirTemp("", "gvisor-user-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	tmp := filepath.Join(dir, "tmp")
	must(t, os.Mkdir(tmp, 0o755))
	must(t, os.Chown(tmp, nobody, nobody))
	// The test program is where only root can go.
	self, err := os.Executable()
	must(t, err)
	program := filepath.Join(dir, "gvisor.test")
	must(t, copyProgram(program, self))

	programs := filepath.Join(dir, "programs")
	must(t, os.Mkdir(programs, 0o755))
	drivertest.Prebuild(t, programs)

	args := []string{"-test.v", "-test.timeout=10m"}
	for _, arg := range os.Args[1:] {
		if strings.HasPrefix(arg, "-test.short") || strings.HasPrefix(arg, "-test.count") || strings.HasPrefix(arg, "-test.parallel") {
			args = append(args, arg)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(gvisortest.Environ(t), "TMPDIR="+tmp, "HOME="+tmp, drivertest.Prebuilt+"="+programs, netdtest.Variable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: false}}
	var out []byte
	err = netdtest.New(t).Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func copyProgram(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}
