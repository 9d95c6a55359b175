package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/store"
)

// oneRuntime is a catalog of one runtime without files.
type oneRuntime struct{ layer string }

func (r oneRuntime) runtime() sandbox.Runtime {
	return sandbox.Runtime{ID: "srt_host", Name: "host:latest", Ready: true, Source: "this host"}
}

func (r oneRuntime) Runtimes(context.Context) ([]sandbox.Runtime, error) {
	return []sandbox.Runtime{r.runtime()}, nil
}

func (r oneRuntime) ProvideDigest(context.Context, sandbox.RuntimeRef) (sandbox.Rootfs, error) {
	return sandbox.Rootfs{Layers: []string{r.layer}}, nil
}

func (r oneRuntime) Provide(_ context.Context, name string, progress func(string)) (sandbox.Runtime, sandbox.Rootfs, error) {
	if name != "host:latest" {
		return sandbox.Runtime{}, sandbox.Rootfs{}, fault.New(fault.NotFound, "no runtime %q", name).About("runtime")
	}
	progress("looking\x1b[31m around")
	return r.runtime(), sandbox.Rootfs{Layers: []string{r.layer}}, nil
}

// terminalless runs command lines against an engine without walls, in process.
type terminalless struct {
	t   *testing.T
	env Env
}

func newTerminalless(t *testing.T) *terminalless {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	host := fake.NewHost()
	e, err := sandbox.NewEngine(t.Context(), sandbox.Config{
		Driver: fake.New(fake.Config{Host: host}), Store: st, Images: oneRuntime{t.TempDir()},
		Guest: driver.Guest{Path: builtBinary}, GuestDigest: "test",
		OutputDir: filepath.Join(dir, "executions"), DefaultRuntime: "host:latest",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), host.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	handler := api.NewHandler(api.Config{
		As:   func(p keys.Principal) sandbox.Operations { return e.As(p) },
		Info: func() api.Info { return api.Info{SSH: "0.0.0.0:2222"} },
	})
	who := keys.Principal{ID: "alice", Role: keys.Admin, Door: "test"}
	return &terminalless{t, Env{
		Getenv: func(string) string { return "" }, StateDir: filepath.Join(dir, "client"),
		Client: func(context.Context, string) (*api.Client, error) {
			return api.NewClient(api.InProcess(handler, who)), nil
		},
	}}
}

type result struct {
	code           int
	stdout, stderr string
}

// run runs a command line with a standard input; change may alter the world.
func (c *terminalless) run(stdin io.Reader, change func(*Env), args ...string) result {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	env := c.env
	env.Stdin, env.Stdout, env.Stderr = stdin, &stdout, &stderr
	if change != nil {
		change(&env)
	}
	return result{run(c.t.Context(), env, args), stdout.String(), stderr.String()}
}

func (c *terminalless) ok(args ...string) string {
	c.t.Helper()
	r := c.run(nil, nil, args...)
	if r.code != 0 {
		c.t.Fatalf("sandgate %q: exit %d, %s", args, r.code, r.stderr)
	}
	return r.stdout
}

func TestCreateListGetDelete(t *testing.T) {
	c := newTerminalless(t)
	id := strings.TrimSpace(c.ok("create", "--name", "dev", "--memory", "512Mi", "--cpu", "0.5", "--env", "A=b=c", "--metadata", `{"k":[1]}`, "--idle-timeout", "1h", "--description", "a\x1b]0;box"))
	if !strings.HasPrefix(id, "sbx_") {
		t.Fatalf("create printed %q", id)
	}
	// The same command under its other names.
	for _, args := range [][]string{{"list"}, {"ls"}, {"sandbox", "list"}, {"sb", "ls", "--status", "idle,running"}} {
		if out := c.ok(args...); !strings.Contains(out, id) || !strings.Contains(out, "dev") || !strings.Contains(out, "idle") {
			t.Errorf("%q printed %q", args, out)
		}
	}
	for _, args := range [][]string{{"get", id}, {"show", "dev"}, {"sb", "info", "dev"}} {
		out := c.ok(args...)
		for _, want := range []string{id, "512Mi", "500m", "idle timeout", "1h"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q printed %q, without %s", args, out, want)
			}
		}
		if strings.ContainsAny(out, "\x1b\a") {
			t.Errorf("%q printed control characters: %q", args, out)
		}
	}
	var got api.Sandbox
	if err := json.Unmarshal([]byte(c.ok("get", "dev", "--json")), &got); err != nil || got.SandboxID != id || string(got.Metadata["k"]) == "" {
		t.Errorf("get --json: %+v, %v", got, err)
	}
	if out := c.ok("exec", "dev", "--", "sh", "-c", "echo $A"); out != "b=c\n" {
		t.Errorf("exec printed %q", out)
	}
	if out := c.ok("events", "dev"); !strings.Contains(out, "lifecycle:started") {
		t.Errorf("events printed %q", out)
	}
	if out := c.ok("execution", "list", "dev"); !strings.Contains(out, "exec_") || !strings.Contains(out, "completed") {
		t.Errorf("execution list printed %q", out)
	}
	other := strings.TrimSpace(c.ok("new"))
	r := c.run(nil, nil, "rm", "dev", "nothing", other)
	if r.code != 1 || r.stdout != "deleted dev\ndeleted "+other+"\n" || !strings.Contains(r.stderr, `no sandbox "nothing"`) {
		t.Errorf("rm: %+v", r)
	}
	if out := c.ok("list", "--json"); strings.Contains(out, "sbx_") {
		t.Errorf("left: %s", out)
	}
	if out := c.ok("list", "--all"); !strings.Contains(out, id) || !strings.Contains(out, "deleted") {
		t.Errorf("list --all printed %q", out)
	}
}

func TestDeleteAsksOnATerminal(t *testing.T) {
	c := newTerminalless(t)
	id := strings.TrimSpace(c.ok("create"))
	terminal := func(e *Env) { e.StdinTTY = true }
	if r := c.run(strings.NewReader("n\n"), terminal, "delete", id); r.code != 0 || r.stdout != "" || !strings.Contains(r.stderr, "[y/N]") {
		t.Errorf("no: %+v", r)
	}
	c.ok("get", id)
	if r := c.run(strings.NewReader("y\n"), terminal, "delete", id); r.code != 0 || r.stdout != "deleted "+id+"\n" {
		t.Errorf("yes: %+v", r)
	}
	id = strings.TrimSpace(c.ok("create"))
	if r := c.run(strings.NewReader(""), terminal, "delete", "--confirm", id); r.code != 0 || strings.Contains(r.stderr, "[y/N]") {
		t.Errorf("--confirm: %+v", r)
	}
}

func TestExec(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "box")
	r := c.run(nil, nil, "exec", "box", "--", "sh", "-c", "printf 'out\\0\\377'; echo err >&2; exit 7")
	if r != (result{7, "out\x00\xff", "err\n"}) {
		t.Errorf("exec: %+v", r)
	}
	if r := c.run(strings.NewReader("abc"), nil, "exec", "box", "--", "wc", "-c"); r.code != 0 || strings.TrimSpace(r.stdout) != "3" {
		t.Errorf("stdin: %+v", r)
	}
	if r := c.run(strings.NewReader("abc"), nil, "exec", "-n", "box", "--", "wc", "-c"); strings.TrimSpace(r.stdout) != "0" {
		t.Errorf("-n: %+v", r)
	}
	if r := c.run(nil, nil, "exec", "box", "--quiet", "--", "sh", "-c", "echo x; exit 3"); r != (result{3, "", ""}) {
		t.Errorf("--quiet: %+v", r)
	}
	if r := c.run(nil, nil, "exec", "box", "--timeout", "50ms", "--", "sleep", "600"); r.code != 124 || r.stderr != "sandgate: the command timed out after 50ms\n" {
		t.Errorf("--timeout: %+v", r)
	}
	var got runResult
	r = c.run(nil, nil, "exec", "box", "--json", "--", "sh", "-c", "echo hi; exit 2")
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 2 || got.Stdout != "hi\n" || got.ExitCode == nil || *got.ExitCode != 2 {
		t.Errorf("--json: %+v, %v", r, err)
	}
	// An input that never ends does not hold a command that has.
	never, feed := io.Pipe()
	defer feed.Close()
	if r := c.run(never, nil, "exec", "box", "--", "true"); r.code != 0 {
		t.Errorf("endless input: %+v", r)
	}
}

// Whoever reads the output goes away: the command is cancelled.
func TestExecIntoClosedPipe(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "box")
	read, write := io.Pipe()
	_ = read.CloseWithError(io.ErrClosedPipe)
	if r := c.run(nil, func(e *Env) { e.Stdout = write }, "exec", "box", "--", "yes"); r.code != exitPipe {
		t.Errorf("yes | true: %+v", r)
	}
	if r := c.run(nil, nil, "exec", "box", "--", "echo", "free again"); r.code != 0 {
		t.Errorf("afterwards: %+v", r)
	}
}

// Ctrl-C cancels the command, and a run leaves nothing behind.
func TestInterrupt(t *testing.T) {
	c := newTerminalless(t)
	for _, args := range [][]string{{"run", "--"}, {"exec", "box", "--"}} {
		if args[0] == "exec" {
			c.ok("create", "--name", "box")
		}
		ctx, interrupt := context.WithCancel(t.Context())
		env := c.env
		env.Stdout = stopWhen{"up\n", interrupt}
		env.Stderr = io.Discard
		if code := run(ctx, env, append(args, "sh", "-c", "echo up; sleep 600")); code != exitInterrupted {
			t.Errorf("%q: exit %d", args, code)
		}
	}
	if out := c.ok("list", "--json"); strings.Contains(out, "oneshot") {
		t.Errorf("left: %s", out)
	}
	if r := c.run(nil, nil, "exec", "box", "--", "true"); r.code != 0 {
		t.Errorf("afterwards: %+v", r)
	}
}

// stopWhen calls stop when text is written.
type stopWhen struct {
	text string
	stop func()
}

func (s stopWhen) Write(b []byte) (int, error) {
	if string(b) == s.text {
		s.stop()
	}
	return len(b), nil
}

func TestRun(t *testing.T) {
	c := newTerminalless(t)
	local := filepath.Join(t.TempDir(), "main.sh")
	if err := os.WriteFile(local, []byte("#!/bin/sh\ncat in; exit 9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	onThisMachine := func(e *Env) { e.Local = true }
	r := c.run(strings.NewReader("data\n"), onThisMachine, "run", "--file", "main.sh:"+local, "--file", "in:-", "--", "./main.sh")
	if r.code != 9 || r.stdout != "data\n" || r.stderr != "sandgate: looking\uFFFD[31m around\n" {
		t.Errorf("run: %+v", r)
	}
	if r := c.run(strings.NewReader("piped"), nil, "run", "-q", "--json", "--", "cat"); r.code != 0 || !strings.Contains(r.stdout, `"stdout": "piped"`) {
		t.Errorf("run --json: %+v", r)
	}
	if out := c.ok("list", "--json"); strings.Contains(out, "sbx_") {
		t.Errorf("left: %s", out)
	}
}

// Mistakes: the exit code, and one line that names what is wrong.
func TestMistakes(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "box")
	for _, m := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"crate"}, 2, "did you mean create?"},
		{[]string{"sb", "lst"}, 2, "did you mean list"},
		{[]string{"frobnicate"}, 2, "frobnicate"},
		{[]string{"key", "ad"}, 2, "did you mean add"},
		{[]string{"create", "--memory", "lots"}, 2, "--memory: "},
		{[]string{"create", "--cpu", "-3"}, 2, "--cpu: "},
		{[]string{"create", "--disk", "1Q"}, 2, "--disk: "},
		{[]string{"create", "--idle-timeout", "soon"}, 2, "--idle-timeout: "},
		{[]string{"create", "--env", "A"}, 2, "--env: "},
		{[]string{"create", "--env", "1X=y"}, 2, "env: "},
		{[]string{"create", "--metadata", "{"}, 2, "--metadata: "},
		{[]string{"create", "--metadata", "[1]"}, 2, "--metadata: "},
		{[]string{"create", "--file", "x"}, 2, "--file: "},
		{[]string{"create", "--file", "x:/etc/hostname"}, 2, "gateway"},
		{[]string{"create", "--bogus"}, 2, "--bogus"},
		{[]string{"create", "extra"}, 2, `"extra"`},
		{[]string{"create", "--snapshot", "x", "--runtime", "host:latest"}, 2, "--snapshot"},
		{[]string{"create", "--snapshot", "x"}, 1, "snapshot"},
		{[]string{"create", "--runtime", "nope:1"}, 1, "nope:1"},
		{[]string{"create", "--name", "No Name"}, 2, "name: "},
		{[]string{"create", "--name", "box"}, 1, "box"},
		{[]string{"list", "--limit", "0"}, 2, "--limit"},
		{[]string{"list", "--limit", "x"}, 2, "--limit"},
		{[]string{"list", "--status", "asleep"}, 2, "status: "},
		{[]string{"list", "--sort", "size"}, 2, "sort: "},
		{[]string{"get"}, 2, "give the id or name of a sandbox"},
		{[]string{"get", ""}, 2, "empty"},
		{[]string{"get", ".."}, 1, ".."},
		{[]string{"get", "runtimes"}, 1, "runtimes"},
		{[]string{"get", "nothing"}, 1, "nothing"},
		{[]string{"delete"}, 2, "give the id"},
		{[]string{"exec", "box"}, 125, "give the command"},
		{[]string{"exec", "box", "ls", "-la"}, 125, "put -- before the command"},
		{[]string{"exec", "nothing", "--", "true"}, 125, "nothing"},
		{[]string{"exec", "box", "--timeout", "soon", "--", "true"}, 125, "--timeout: "},
		{[]string{"run"}, 125, "give the command"},
		{[]string{"run", "--runtime", "nope:1", "--", "true"}, 125, "nope:1"},
		{[]string{"ssh", "-oProxyCommand=x"}, 125, "unknown shorthand flag"},
		{[]string{"ssh", "--", "-oProxyCommand=x"}, 125, "is not the id or name"},
		{[]string{"key", "add", "/etc/hostname"}, 2, "gateway"},
		{[]string{"key", "delete", "SHA256:x"}, 1, "SHA256:x"},
		{[]string{"key", "api", "create", "--expires", "yesterday"}, 2, "--expires: "},
		{[]string{"key", "api", "create", "--expires", "2001-01-01"}, 2, "past"},
		{[]string{"key", "api", "create", "--role", "king"}, 2, "role: "},
		{[]string{"--host", "x", "list"}, 2, "--host"},
	} {
		r := c.run(nil, nil, m.args...)
		if r.code != m.code || r.stdout != "" || !strings.HasPrefix(r.stderr, "sandgate: ") || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, m.says) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want exit %d and one line with %q", m.args, r.code, r.stdout, r.stderr, m.code, m.says)
		}
	}
	if out := c.ok("list", "--all", "--json"); strings.Count(out, `"sandboxId"`) != 1 {
		t.Errorf("something was made: %s", out)
	}
}
