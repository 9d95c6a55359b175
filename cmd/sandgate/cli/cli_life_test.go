package cli

import (
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/api"
)

func TestPauseAndResume(t *testing.T) {
	c := newTerminalless(t)
	id := strings.TrimSpace(c.ok("create", "--name", "dev", "--paused-timeout", "24h"))
	if out := c.ok("hibernate", "dev"); !strings.HasPrefix(out, "paused "+id) || !strings.Contains(out, "deleted at") {
		t.Errorf("pause printed %q", out)
	}
	if out := c.ok("get", "dev"); !strings.Contains(out, "paused timeout") || !strings.Contains(out, "with what runs in it") || !strings.Contains(out, "terminates") || !strings.Contains(out, "paused for 24h") {
		t.Errorf("get printed %q", out)
	}
	if out := c.ok("list", "--status", "paused", "--json"); !strings.Contains(out, id) || !strings.Contains(out, `"terminatesAt"`) {
		t.Errorf("list printed %q", out)
	}
	if out := c.ok("list", "--status", "idle", "--json"); strings.Contains(out, id) {
		t.Errorf("list printed %q", out)
	}
	if out := c.ok("wake", "dev", "--json"); !strings.Contains(out, `"status": "idle"`) {
		t.Errorf("resume printed %q", out)
	}
	c.ok("pause", "dev")
	if r := c.run(nil, nil, "exec", "dev", "--", "echo", "up"); r.code != 0 || r.stdout != "up\n" || !strings.Contains(r.stderr, "resumed") {
		t.Errorf("exec in a paused one: %+v", r)
	}
	if r := c.run(nil, nil, "pause", "nobody"); r.code != 1 || !strings.Contains(r.stderr, "nobody") {
		t.Errorf("pause of none: %+v", r)
	}
	if r := c.run(nil, nil, "create", "--paused-timeout", "soon"); r.code != 2 || !strings.Contains(r.stderr, "--paused-timeout") {
		t.Errorf("a bad timeout: %+v", r)
	}
}

func TestJobs(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "dev")
	id := strings.TrimSpace(c.ok("job", "create", "dev", "--env", "WHO=you", "--", "sh", "-c", "echo hi $WHO; echo oops >&2; exec sleep 600"))
	if !strings.HasPrefix(id, "job_") {
		t.Fatalf("job create printed %q", id)
	}
	if out := c.ok("job", "ls", "dev"); !strings.Contains(out, id) || !strings.Contains(out, "running") {
		t.Errorf("job list printed %q", out)
	}
	stopped := make(chan string)
	go func() { stopped <- c.run(nil, nil, "job", "logs", "dev", id, "-f", "--timestamps").stdout }()
	if out := c.ok("job", "destroy", "dev", id, "--force"); out != id+" is cancelled\n" {
		t.Errorf("job destroy printed %q", out)
	}
	if out := <-stopped; !regexp.MustCompile(`^(\d{4}-\S+Z hi you\n)?$`).MatchString(out) {
		t.Errorf("job logs -f printed %q", out)
	}
	done := strings.TrimSpace(c.ok("job", "new", "dev", "--", "sh", "-c", "echo one; echo two; exit 3"))
	c.ok("job", "logs", "dev", done, "-f")
	if r := c.run(nil, nil, "job", "logs", "dev", done, "--tail", "1"); r.stdout != "two\n" {
		t.Errorf("the last line: %+v", r)
	}
	var got struct{ Stdout, Stderr string }
	if err := json.Unmarshal([]byte(c.ok("job", "logs", "dev", done, "--json")), &got); err != nil || got.Stdout != "one\ntwo\n" {
		t.Errorf("job logs --json: %+v, %v", got, err)
	}
	if out := c.ok("job", "show", "dev", done); !strings.Contains(out, "failed") || !strings.Contains(out, "exit code  3") {
		t.Errorf("job get printed %q", out)
	}
	c.ok("create", "--name", "other")
	for _, args := range [][]string{{"job", "get", "other", done}, {"job", "logs", "dev", "job_aaaaaaaaaaaa"}, {"job", "destroy", "other", done}} {
		if r := c.run(nil, nil, args...); r.code != 1 || !strings.Contains(r.stderr, "job") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestEnvForkUpdateStats(t *testing.T) {
	c := newTerminalless(t)
	first := strings.TrimSpace(c.ok("create", "--name", "dev", "--env", "A=1"))
	if out := c.ok("env", "dev", "B=two words", "C=3"); out != "A=1\nB=two words\nC=3\n" {
		t.Errorf("env printed %q", out)
	}
	if out := c.ok("env", "dev", "-d", "C", "--delete", "A"); out != "B=two words\n" {
		t.Errorf("env -d printed %q", out)
	}
	if out := c.ok("exec", "dev", "--", "sh", "-c", "echo $A$B; echo kept >f"); out != "two words\n" {
		t.Errorf("exec printed %q", out)
	}
	for _, args := range [][]string{{"env", "dev", "B"}, {"env", "dev", "B=1", "-d", "B"}, {"update", "dev"}, {"stats", "dev", "--start", "1d"}, {"stats", "--start", "soon"}, {"events", "dev", "-f", "--reverse"}} {
		if r := c.run(nil, nil, args...); r.code != 2 {
			t.Errorf("%q: %+v", args, r)
		}
	}
	c.ok("fork", "dev", "--name", "try", "--inherit-env", "--memory", "64Mi")
	if out := c.ok("exec", "try", "--", "sh", "-c", "cat f; echo $B"); out != "kept\ntwo words\n" {
		t.Errorf("in the fork: %q", out)
	}
	if out := c.ok("get", "try"); !strings.Contains(out, "forked from  "+first) || !strings.Contains(out, "64Mi") {
		t.Errorf("get printed %q", out)
	}
	c.ok("update", "try", "--name", "tried", "--memory", "128Mi", "--idle-timeout", "1h")
	var got api.Sandbox
	if err := json.Unmarshal([]byte(c.ok("get", "tried", "--json")), &got); err != nil || got.Resources.Memory != "128Mi" || got.Timeout.Idle != "1h" || got.TerminatesAt.IsZero() || got.Usage == nil {
		t.Errorf("after the update: %+v, %v", got, err)
	}
	if out := c.ok("stats", "dev"); !strings.Contains(out, first) || !strings.Contains(out, "processes") {
		t.Errorf("stats of one printed %q", out)
	}
	if out := c.ok("stats", "--start", "1h"); !strings.Contains(out, "sandboxes    2") || !strings.Contains(out, "2 idle") {
		t.Errorf("stats printed %q", out)
	}
	if out := c.ok("events"); !strings.Contains(out, first) || !strings.Contains(out, "fork") {
		t.Errorf("events of all printed %q", out)
	}
	if r := c.run(nil, nil, "exec", "dev", "--timestamps", "--", "sh", "-c", "echo a; echo b"); !regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\S+Z [ab]\n){2}$`).MatchString(r.stdout) {
		t.Errorf("exec --timestamps: %+v", r)
	}
	if r := c.run(nil, nil, "run", "--timestamps", "--", "echo", "a"); !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+Z a\n$`).MatchString(r.stdout) {
		t.Errorf("run --timestamps: %+v", r)
	}
}

// What happens is shown as it does, until the reader goes away.
func TestEventsFollow(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "dev")
	r, w := io.Pipe()
	ended := make(chan result, 1)
	go func() {
		res := c.run(nil, func(e *Env) { e.Stdout = w }, "events", "dev", "--follow", "--json")
		w.Close()
		ended <- res
	}()
	// The subscription begins at some moment: events go on until one is seen.
	stop := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				c.run(nil, nil, "env", "dev", "N=1")
			}
		}
	}()
	var e api.Event
	if err := json.NewDecoder(r).Decode(&e); err != nil || e.Type != "update" {
		t.Errorf("followed %+v, %v", e, err)
	}
	close(stop)
	r.Close()
	c.ok("env", "dev", "N=2")
	if res := <-ended; res.code != exitPipe {
		t.Errorf("when the reader was gone: %+v", res)
	}
}
