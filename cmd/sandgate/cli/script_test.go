package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The stories in testdata/script run the real binary, with real sandboxes,
// through the system's own ssh. Each has a server and a state folder of its
// own; what a story may use is listed in storyCommands.

// builtBinary is the sandgate binary of this test run: SANDGATE_BIN, or one
// built now. It is not the test binary, whose race detector gVisor cannot run
// under.
var builtBinary string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sandgate-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	builtBinary = os.Getenv("SANDGATE_BIN")
	if builtBinary == "" {
		builtBinary = filepath.Join(dir, "sandgate")
		build := exec.Command("go", "build", "-o", builtBinary, "..")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build sandgate:", err)
			return 1
		}
	}
	return m.Run()
}

// storyTimeout ends a story that hangs, its ssh clients included.
const storyTimeout = 4 * time.Minute

func TestStories(t *testing.T) {
	for _, tool := range []string{"ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the stories need %s: %v", tool, err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               setupStory,
		Condition:           storyCondition,
		Cmds:                storyCommands(),
		Deadline:            time.Now().Add(20 * time.Minute),
	})
}

func setupStory(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "home")
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		return err
	}
	// Folders of tests have long names and sockets have short ones.
	state, err := os.MkdirTemp("", "sg-")
	if err != nil {
		return err
	}
	env.Setenv("HOME", home)
	env.Setenv("SANDGATE_STATE", state)
	env.Setenv("SSHCFG", filepath.Join(env.WorkDir, "ssh_config"))
	env.Setenv("PATH", filepath.Dir(builtBinary)+":"+os.Getenv("PATH"))
	env.Setenv("TMPDIR", env.WorkDir)
	for _, who := range []string{"admin", "alice", "bob", "stranger"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", filepath.Join(env.WorkDir, who)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	// The user who starts the server has the admin key.
	for from, to := range map[string]string{"admin": "id_ed25519", "admin.pub": "id_ed25519.pub"} {
		key, err := os.ReadFile(filepath.Join(env.WorkDir, from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(home, ".ssh", to), key, 0o600); err != nil {
			return err
		}
	}
	s := &story{}
	env.Values[storyKey{}] = s
	env.Defer(func() {
		s.end(env)
		unmountBelow(env)
		os.RemoveAll(state)
	})
	return nil
}

// unmountBelow takes down what a story has mounted and, having failed, left.
func unmountBelow(env *testscript.Env) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], env.WorkDir+"/") {
			if err := syscall.Unmount(f[1], syscall.MNT_DETACH); err != nil {
				env.T().Log("unmount ", f[1], ": ", err)
			}
		}
	}
}

// storyCondition knows [root] and [docker].
func storyCondition(cond string) (bool, error) {
	switch cond {
	case "root":
		return os.Geteuid() == 0, nil
	case "docker":
		return exec.Command("docker", "version").Run() == nil, nil
	}
	return false, fmt.Errorf("there is no condition %q", cond)
}

type storyKey struct{}

// story is the server of one story.
type story struct {
	server *exec.Cmd
	done   chan struct{}
}

// end removes every sandbox of the story and ends its server, however the
// story went.
func (s *story) end(env *testscript.Env) {
	run := func(args ...string) {
		cmd := exec.Command(builtBinary, args...)
		cmd.Env = env.Vars
		if out, err := cmd.CombinedOutput(); err != nil {
			env.T().Log("clean up: sandgate ", strings.Join(args, " "), ": ", err, "\n", string(out))
		}
	}
	if _, err := os.Stat(filepath.Join(env.Getenv("SANDGATE_STATE"), "state.db")); err == nil {
		out, _ := func() ([]byte, error) {
			cmd := exec.Command(builtBinary, "list", "--json", "--limit", "100")
			cmd.Env = env.Vars
			return cmd.Output()
		}()
		for _, m := range regexp.MustCompile(`sbx_[a-z0-9]+`).FindAllString(string(out), -1) {
			run("delete", m)
		}
		run("stop")
	}
	s.kill()
}

func (s *story) kill() {
	if s.server != nil {
		s.server.Process.Kill()
		<-s.done
		s.server = nil
	}
}

func storyCommands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		// serve [flags]: start a server in the background, wait until it is up,
		// and write an ssh_config with the hosts gw (admin's key), alice, bob
		// and stranger.
		"serve": func(ts *testscript.TestScript, neg bool, args []string) {
			s := ts.Value(storyKey{}).(*story)
			if err := s.start(ts, args); (err != nil) != neg {
				ts.Fatalf("serve: %v", err)
			}
		},
		// crash: kill -9 the server.
		"crash": func(ts *testscript.TestScript, neg bool, args []string) {
			ts.Value(storyKey{}).(*story).kill()
		},
		// capture VAR FILE: set a variable to what the file holds, trimmed.
		"capture": func(ts *testscript.TestScript, neg bool, args []string) {
			if len(args) != 2 {
				ts.Fatalf("usage: capture VAR FILE")
			}
			ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
		},
		// bash SCRIPT: run it with bash; pipelines fail if a part does.
		"bash": func(ts *testscript.TestScript, neg bool, args []string) {
			err := ts.Exec("timeout", "--foreground", fmt.Sprint(int(storyTimeout.Seconds())), "bash", "-c", "set -o pipefail; "+strings.Join(args, " "))
			if (err != nil) != neg {
				ts.Fatalf("bash: %v", err)
			}
		},
	}
}

var sshLine = regexp.MustCompile(`(?m)^ssh\s+(\S+):(\d+)$`)

// start starts `sandgate serve` and waits for the line that tells its port.
func (s *story) start(ts *testscript.TestScript, args []string) error {
	s.kill()
	cmd := exec.Command(builtBinary, append([]string{"serve", "--ssh", "127.0.0.1:0", "--default-runtime", "host:latest"}, args...)...)
	for _, k := range []string{"HOME", "PATH", "SANDGATE_STATE", "TMPDIR"} {
		cmd.Env = append(cmd.Env, k+"="+ts.Getenv(k))
	}
	cmd.Dir = ts.Getenv("WORK")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd.Stderr = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	s.server, s.done = cmd, make(chan struct{})
	done := s.done
	go func() {
		defer close(done)
		cmd.Wait()
	}()
	// The log goes to a file from here on; a reader that went away would end
	// the server with SIGPIPE.
	logPath := filepath.Join(ts.Getenv("WORK"), "server.log")
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	keep, err := syscall.Dup(int(r.Fd()))
	if err != nil {
		return err
	}
	pipe := os.NewFile(uintptr(keep), "server stderr")
	up := make(chan string, 1)
	go func() {
		defer logFile.Close()
		defer pipe.Close()
		sc := bufio.NewScanner(pipe)
		for sc.Scan() {
			fmt.Fprintln(logFile, sc.Text())
			if m := sshLine.FindStringSubmatch(sc.Text()); m != nil {
				select {
				case up <- m[2]:
				default:
				}
			}
		}
		close(up)
	}()
	select {
	case port, ok := <-up:
		if !ok {
			<-s.done
			return errors.New("the server ended: " + ts.ReadFile(logPath))
		}
		ts.Setenv("PORT", port)
		return writeSSHConfig(ts, port)
	case <-time.After(time.Minute):
		return errors.New("the server did not come up: " + ts.ReadFile(logPath))
	}
}

// writeSSHConfig makes one host per identity.
func writeSSHConfig(ts *testscript.TestScript, port string) error {
	var b strings.Builder
	work := ts.Getenv("WORK")
	for host, key := range map[string]string{"gw": "admin", "alice": "alice", "bob": "bob", "stranger": "stranger"} {
		fmt.Fprintf(&b, "Host %s\n  HostName 127.0.0.1\n  Port %s\n  HostKeyAlias gw\n  IdentityFile %s\n", host, port, filepath.Join(work, key))
	}
	// A stranger sees what the gateway says before it refuses.
	fmt.Fprintf(&b, "Host stranger\n  LogLevel INFO\nHost *\n  IdentitiesOnly yes\n  IdentityAgent none\n  BatchMode yes\n  StrictHostKeyChecking accept-new\n  UserKnownHostsFile %s\n  LogLevel ERROR\n", filepath.Join(work, "known_hosts"))
	return os.WriteFile(ts.Getenv("SSHCFG"), []byte(b.String()), 0o600)
}
