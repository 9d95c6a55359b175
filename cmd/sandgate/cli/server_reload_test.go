package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sshgw"
)

// foreground is a server that this test has started itself, as a person would
// in a terminal.
type foreground struct {
	t     *testing.T
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
	ssh   []string // of the ssh client, up to the destination

	mu   sync.Mutex
	said bytes.Buffer
	more chan struct{}
}

func (f *foreground) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said.Write(b)
	select {
	case f.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (f *foreground) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.said.String()
}

// expect waits until the server has said something that matches.
func (f *foreground) expect(pattern string) []string {
	f.t.Helper()
	re, late := regexp.MustCompile(pattern), time.After(time.Minute)
	for {
		if m := re.FindStringSubmatch(f.text()); m != nil {
			return m
		}
		select {
		case <-f.more:
		case <-late:
			f.t.Fatalf("the server never said %s; it said\n%s", pattern, f.text())
		}
	}
}

func serveInForeground(t *testing.T, args ...string) *foreground {
	t.Helper()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skipf("needs ssh: %v", err)
	}
	dir, err := os.MkdirTemp("", "sg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &foreground{t: t, dir: dir, ended: make(chan struct{}), more: make(chan struct{}, 1)}
	key := filepath.Join(dir, "home", ".ssh", "id_ed25519")
	if err := os.MkdirAll(filepath.Dir(key), 0o700); err != nil {
		t.Fatal(err)
	}
	f.keygen(key)
	f.cmd = f.sandgate(append([]string{"serve", "--ssh", "127.0.0.1:0"}, args...)...)
	f.cmd.Stderr = f
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(f.ended); _ = f.cmd.Wait() }()
	t.Cleanup(func() {
		_ = f.cmd.Process.Kill()
		<-f.ended
	})
	port := f.expect(`(?m)^ssh +127\.0\.0\.1:(\d+)$`)[1]
	f.expect(`host key SHA256`)
	f.ssh = []string{"-F", "none", "-i", key, "-p", port, "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"}
	return f
}

func (f *foreground) keygen(path string) {
	f.t.Helper()
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput(); err != nil {
		f.t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
}

func (f *foreground) sandgate(args ...string) *exec.Cmd {
	cmd := exec.Command(builtBinary, args...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(f.dir, "home"), "SANDGATE_STATE="+filepath.Join(f.dir, "state"), "SSH_AUTH_SOCK=")
	return cmd
}

// ok runs a command to its end.
func ok(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s%s", cmd.Args, err, out, errs.String())
	}
	return string(out)
}

// A reload takes over what it finds, keeps what it had where that is damaged,
// drops no connection, and is asked for by command or by signal.
func TestReload(t *testing.T) {
	f := serveInForeground(t)
	control := filepath.Join(f.dir, "mux")
	master := exec.Command("ssh", append(append([]string{"-M", "-N", "-S", control}, f.ssh...), "sandgate@127.0.0.1")...)
	if err := master.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Process.Kill(); _ = master.Wait() })
	over := func(args ...string) *exec.Cmd {
		return exec.Command("ssh", append(append(append([]string{"-S", control}, f.ssh...), "-o", "ProxyCommand=false", "sandgate@127.0.0.1"), args...)...)
	}
	tick, late := time.NewTicker(20*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for over("version").Run() != nil {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("no master")
		}
	}
	hostKey := filepath.Join(f.dir, "state", "hostkeys", "ssh_host_ed25519_key")
	fingerprint := func() string { return strings.Fields(ok(t, exec.Command("ssh-keygen", "-lf", hostKey)))[1] }
	seen := func() string {
		cmd := exec.Command("ssh", append(append([]string{"-v"}, f.ssh...), "-o", "LogLevel=DEBUG1", "sandgate@127.0.0.1", "version")...)
		out, _ := cmd.CombinedOutput()
		m := regexp.MustCompile(`Server host key: \S+ (SHA256:\S+)`).FindSubmatch(out)
		if m == nil {
			t.Fatalf("%s", out)
		}
		return string(m[1])
	}
	before := fingerprint()
	if seen() != before {
		t.Error("another host key than the file's")
	}
	if err := os.Remove(hostKey); err != nil {
		t.Fatal(err)
	}
	f.keygen(hostKey)
	said := ok(t, f.sandgate("reload"))
	if !strings.Contains(said, "reloaded: ") || !strings.Contains(said, "host keys ("+fingerprint()) || !strings.Contains(said, "only by a restart") {
		t.Errorf("reload said %q", said)
	}
	if now := seen(); now == before || now != fingerprint() {
		t.Errorf("the host key is %s, it was %s", now, before)
	}
	// A damaged file changes nothing, and is named.
	good := fingerprint()
	if err := os.WriteFile(hostKey, []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := over("reload").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not reloaded: host keys") || !strings.Contains(string(out), hostKey) {
		t.Errorf("reload: %v, %q", err, out)
	}
	if seen() != good {
		t.Error("the damaged file was taken over")
	}
	// By signal, also for an audit log that was moved away.
	log := filepath.Join(f.dir, "state", "audit.log")
	if err := os.Rename(log, log+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	f.expect(`(?s)msg=reload.*msg=reload.*outcome="reloaded: audit log`)
	ok(t, over("version"))
	if b, err := os.ReadFile(log); err != nil || !strings.Contains(string(b), `"what":"command"`) {
		t.Errorf("the new audit log: %v, %s", err, b)
	}
}

// The audit log over all its ways: the file, the command, the command over ssh.
func TestAuditCommand(t *testing.T) {
	f := serveInForeground(t, "--audit-commands")
	dest := append(append([]string{}, f.ssh...), "sandgate@127.0.0.1")
	ok(t, exec.Command("ssh", append(dest, "version")...))
	var records []sandbox.AuditRecord
	for line := range strings.Lines(ok(t, f.sandgate("audit", "--json", "--kind", "login,start"))) {
		var r sandbox.AuditRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	if len(records) != 2 || records[0].Kind != sandbox.AuditLogin || records[0].User != "sandgate" || !strings.HasPrefix(records[0].Key, "SHA256:") ||
		records[1].Command != "version" || records[1].Connection != records[0].Connection {
		t.Errorf("%+v", records)
	}
	if out := ok(t, exec.Command("ssh", append(dest, "audit", "--kind", "login", "--limit", "1")...)); strings.Count(out, "\n") != 1 || !strings.Contains(out, "login") {
		t.Errorf("over ssh: %q", out)
	}
	info, err := os.Stat(filepath.Join(f.dir, "state", "audit.log"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	follow := exec.CommandContext(ctx, builtBinary, "audit", "--follow", "--json", "--limit", "1", "--kind", "start")
	follow.Env = f.sandgate().Env
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(out)
	var r sandbox.AuditRecord
	if err := lines.Decode(&r); err != nil { // what was there
		t.Fatal(err)
	}
	ok(t, exec.Command("ssh", append(dest, "list")...))
	if err := lines.Decode(&r); err != nil || r.Command != "list" {
		t.Errorf("followed: %+v, %v", r, err)
	}
	_ = follow.Process.Kill()
	_ = follow.Wait()
}

// The first signal drains, the second one ends at once.
func TestSecondSignal(t *testing.T) {
	f := serveInForeground(t, "--ssh-limit", "drain=1h")
	open := exec.Command("ssh", append(append([]string{}, f.ssh...), "sandgate@127.0.0.1", "events", "--follow")...)
	if err := open.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Process.Kill(); _ = open.Wait() }()
	f.expect(`msg="ssh session started"`)
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	f.expect(`msg="ssh draining"`)
	select {
	case <-f.ended:
		t.Fatal("it did not wait for its client")
	default:
	}
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-f.ended:
	case <-time.After(time.Minute):
		t.Fatal("the second signal did not end it")
	}
}

func TestSSHLimits(t *testing.T) {
	all := map[string]string{
		"handshake": "30s", "half-open": "7", "half-open-per-source": "6", "burst": "5", "rate": "4", "penalty": "2m", "loopback": "on", "auth-tries": "9",
		"connections": "11", "sessions": "12", "forwards": "13", "sessions-per-connection": "14", "forwards-per-connection": "15",
		"bytes": "64Mi", "bytes-per-connection": "32Mi", "keepalive": "16s", "keepalive-misses": "17",
		"session-idle": "18s", "forward-idle": "19s", "unused": "20s", "drain": "21s",
	}
	var items []string
	for name, value := range all {
		items = append(items, name+"="+value)
	}
	l, err := parseSSHLimits(items)
	if err != nil {
		t.Fatal(err)
	}
	fields := reflect.ValueOf(l)
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			t.Errorf("nothing sets %s", fields.Type().Field(i).Name)
		}
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "ssh.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range sshLimits() {
		if all[limit.name] == "" {
			t.Errorf("%s is not tested", limit.name)
		}
		if !strings.Contains(string(doc), fmt.Sprintf("| `%s` |", limit.name)) {
			t.Errorf("docs/ssh.md does not tell of %s", limit.name)
		}
	}
	for item, want := range map[string]string{
		"drain": "NAME=VALUE", "nonsense=1": "handshake, half-open", "drain=x": "drain", "drain=0s": "drain", "sessions=0": "1 to", "sessions=-1": "1 to",
		"bytes=1Ki": "4Mi", "loopback=yes": "on nor off", "penalty=forever": "or off", "rate=1e9": "1 to", "bytes-per-connection=64Mi,bytes=32Mi": "more than bytes",
	} {
		_, err := parseSSHLimits(strings.Split(item, ","))
		if err == nil || !strings.Contains(err.Error(), "--ssh-limit") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", item, err)
		}
	}
	if l, err := parseSSHLimits([]string{"penalty=off", "unused=off"}); err != nil || l != (sshgw.Limits{PenaltyMax: -1}) {
		t.Errorf("%+v, %v", l, err)
	}
}

// Visits become events: one when a connection stays, one when it has ended,
// and one for many that were over at once.
func TestVisitors(t *testing.T) {
	var told []string
	v := newVisitors(func(_ context.Context, id string, visits ...sandbox.Visit) {
		for _, x := range visits {
			told = append(told, fmt.Sprint(id, " ", x.Principal, " ", x.Ended.IsZero(), " ", x.Connections, " ", x.Sessions, " ", x.In))
		}
	})
	id, now := sandbox.NewID("sbx"), time.Unix(1e9, 0)
	take := func(kind sandbox.AuditKind, conn, who string) {
		v.take(sandbox.AuditRecord{Kind: kind, Time: now, Sandbox: id, Connection: conn, Principal: who, Sessions: 1, In: 10, DurationMS: 5})
	}
	expect := func(want ...string) {
		t.Helper()
		v.flush(t.Context())
		for i := range want {
			want[i] = id + " " + want[i]
		}
		if fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("told %q, want %q", told, want)
		}
		told = nil
	}
	for i := range 5 {
		take(sandbox.AuditConnect, fmt.Sprint("c", i), "alice")
		take(sandbox.AuditDisconnect, fmt.Sprint("c", i), "alice")
	}
	expect("alice false 5 5 50")
	take(sandbox.AuditConnect, "long", "bob")
	expect("bob true 1 0 0")
	expect()
	take(sandbox.AuditDisconnect, "long", "bob")
	expect("bob false 1 1 10")
	v.take(sandbox.AuditRecord{Kind: sandbox.AuditConnect, Sandbox: "no id", Connection: "x"})
	expect()
	if len(v.here)+len(v.over)+len(v.ready) != 0 {
		t.Errorf("%d %d %d are left", len(v.here), len(v.over), len(v.ready))
	}
}
