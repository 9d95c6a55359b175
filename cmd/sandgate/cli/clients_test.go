package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// One story, many clients. Programs that share no code with each other, and
// none with the gateway, all do the same against one real server and one real
// sandbox: a shell on a terminal, commands with their exit codes, standard
// output and error apart, 64 MiB both ways, 1,000 small files both ways, a
// local forward to a server inside. Which client does what, and what it cannot
// do, is in docs/clients.md.

const (
	bulkBytes  = 64 << 20
	smallFiles = 1000
	// The web server inside, which forwards lead to, and what it says.
	insidePort = "8080"
	insideText = "hello from inside\n"
	// clientPatience is for what one client does, on a machine that is busy.
	clientPatience = 3 * time.Minute
)

// stage is what the clients act on: a server with one sandbox, called box.
type stage struct {
	t      *testing.T
	dir    string
	server *exec.Cmd
	done   chan struct{} // closed when the server has ended
	log    bytes.Buffer  // of the servers; to be read once they have ended
	port   string
	key    string        // private key file, OpenSSH's format
	host   ssh.PublicKey // of the gateway
	config string        // of OpenSSH: the host "box"
	env    []string

	bulk, bulkSum string // a file of bulkBytes of noise
	small, treeID string // a folder of smallFiles files
}

func TestClients(t *testing.T) {
	s := newStage(t)
	t.Run("programs", func(t *testing.T) {
		for _, p := range clientPrograms() {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				s.perform(t, p)
			})
		}
		t.Run("editor", func(t *testing.T) {
			t.Parallel()
			s.edit(t)
		})
	})
	t.Run("libraries", func(t *testing.T) {
		for _, l := range clientLibraries() {
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				s.recite(t, l)
			})
		}
	})
	t.Run("files", func(t *testing.T) {
		for _, c := range clientCopiers() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s.carry(t, c)
			})
		}
		t.Run("git", func(t *testing.T) {
			t.Parallel()
			s.pushAndPull(t)
		})
		t.Run("sshfs", func(t *testing.T) {
			t.Parallel()
			s.mountAndUse(t)
		})
	})
	t.Run("audit", func(t *testing.T) { s.audit(t) })
	// The same state, and the same sandbox, under a server that meets old
	// clients half way.
	s.serve("--ssh-compat")
	t.Run("curl", func(t *testing.T) { s.carry(t, curlCopier()) })
}

func newStage(t *testing.T) *stage {
	t.Helper()
	needTools(t, "ssh", "ssh-keygen")
	dir, err := os.MkdirTemp("", "sg-")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, dir: dir, key: filepath.Join(dir, "home", ".ssh", "id_ed25519"), config: filepath.Join(dir, "ssh_config")}
	s.env = append(os.Environ(), "HOME="+filepath.Join(dir, "home"), "SANDGATE_STATE="+filepath.Join(dir, "state"),
		"SSH_AUTH_SOCK=", "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	t.Cleanup(func() {
		s.sandgate("delete", "box")
		s.stop()
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("log of the server:\n%s", lastOf(s.log.String()))
		}
	})
	if err := os.MkdirAll(filepath.Dir(s.key), 0o700); err != nil {
		t.Fatal(err)
	}
	s.run(t, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.key)
	s.convertKeys()
	s.serve()
	s.sandgate("create", "--name", "box")
	s.run(t, nil, "ssh", "-F", s.config, "box", "true") // accepts the host key
	s.host = s.knownHost()
	s.inside(t, "mkdir -p www && printf '"+strings.ReplaceAll(insideText, "\n", `\n`)+"' >www/hello && "+
		"busybox httpd -p 127.0.0.1:"+insidePort+" -h /workspace/www")
	s.makeFiles()
	return s
}

// serve starts the server, in place of the one that runs.
func (s *stage) serve(flags ...string) {
	s.t.Helper()
	s.stop()
	cmd := exec.Command(builtBinary, append([]string{"serve", "--ssh", "127.0.0.1:" + cmp.Or(s.port, "0"), "--default-runtime", "host:latest", "--network", "off"}, flags...)...)
	cmd.Env, cmd.Dir = s.env, s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.server, s.done = cmd, make(chan struct{})
	up, done := make(chan string, 1), s.done
	go func() {
		defer close(done)
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
			fmt.Fprintln(&s.log, sc.Text())
			if m := sshLine.FindStringSubmatch(sc.Text()); m != nil {
				up <- m[2]
			}
		}
		cmd.Wait()
	}()
	select {
	case s.port = <-up:
	case <-done:
		s.t.Fatalf("the server ended: %s", s.log.Bytes())
	case <-time.After(time.Minute):
		s.t.Fatal("the server did not come up")
	}
	if err := os.WriteFile(s.config, []byte(fmt.Sprintf(`Host box
  HostName 127.0.0.1
  Port %s
  User box
  IdentityFile %s
  IdentitiesOnly yes
  IdentityAgent none
  BatchMode yes
  StrictHostKeyChecking accept-new
  UserKnownHostsFile %s
  LogLevel ERROR
`, s.port, s.key, filepath.Join(s.dir, "known_hosts"))), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) stop() {
	if s.server == nil {
		return
	}
	s.server.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		s.t.Error("the server does not stop")
		s.server.Process.Kill()
		<-s.done
	}
	s.server = nil
}

func (s *stage) sandgate(args ...string) {
	s.t.Helper()
	s.run(s.t, nil, builtBinary, args...)
}

// inside runs a command in the sandbox, with OpenSSH.
func (s *stage) inside(t *testing.T, command string) string {
	t.Helper()
	return s.run(t, nil, "ssh", "-n", "-F", s.config, "box", command)
}

// run runs a program to its end and returns what it printed.
func (s *stage) run(t *testing.T, stdin io.Reader, name string, args ...string) string {
	t.Helper()
	status, stdout, stderr := s.try(t, stdin, name, args...)
	if status != 0 {
		t.Fatalf("%s %s: exit status %d\n%s%s", name, strings.Join(args, " "), status, lastOf(stdout), lastOf(stderr))
	}
	return stdout
}

func (s *stage) try(t *testing.T, stdin io.Reader, name string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out bytes.Buffer
	status, stderr = s.stream(t, stdin, &out, name, args...)
	return status, out.String(), stderr
}

// stream runs a program with its streams connected; status -1 when it did not
// end by itself.
func (s *stage) stream(t *testing.T, stdin io.Reader, stdout io.Writer, name string, args ...string) (status int, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), clientPatience) // cleaning up, too
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &errs
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return exit.ExitCode(), errs.String()
	}
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, lastOf(errs.String()))
	}
	return 0, errs.String()
}

// knownHost is the host key that OpenSSH has accepted.
func (s *stage) knownHost() ssh.PublicKey {
	s.t.Helper()
	line, err := os.ReadFile(filepath.Join(s.dir, "known_hosts"))
	if err != nil {
		s.t.Fatal(err)
	}
	_, _, key, _, _, err := ssh.ParseKnownHosts(line)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

// makeFiles makes what the clients carry in and out.
func (s *stage) makeFiles() {
	s.t.Helper()
	noise := rand.NewChaCha8([32]byte{1})
	b := make([]byte, bulkBytes)
	noise.Read(b)
	s.bulk, s.bulkSum = filepath.Join(s.dir, "bulk"), sum(b)
	if err := os.WriteFile(s.bulk, b, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.small = filepath.Join(s.dir, "small")
	for i := range smallFiles {
		path := filepath.Join(s.small, fmt.Sprintf("d%d", i%10), fmt.Sprintf("f %03d", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.t.Fatal(err)
		}
		n := i * 7 % 2048 // the empty one among them
		if err := os.WriteFile(path, b[i*2048:i*2048+n], 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	s.treeID = localTree(s.t, s.small)
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// localTree says what files a folder holds; treeCommand says the same of one
// in the sandbox.
func localTree(t *testing.T, dir string) string {
	t.Helper()
	var lines strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, path))
		fmt.Fprintf(&lines, "%s  ./%s\n", sum(b), path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum([]byte(lines.String()))
}

func treeCommand(dir string) string {
	return "cd " + dir + " && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64"
}

// hello asks the web server inside for its file, over a connection to it.
func hello(conn net.Conn) (string, error) {
	conn.SetDeadline(time.Now().Add(clientPatience))
	if _, err := io.WriteString(conn, "GET /hello HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(conn)
	_, body, _ := strings.Cut(string(b), "\r\n\r\n")
	return body, err
}

// needTools skips the test where a program is missing.
func needTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
}

// lastOf is the end of what a program said.
func lastOf(text string) string {
	if n := len(text) - 2000; n > 0 {
		return "…" + text[n:]
	}
	return text
}
