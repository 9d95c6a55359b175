package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// ask sends a request as it is and returns status and envelope.
func ask(t testing.TB, h http.Handler, method, path, body string) (int, map[string]any) {
	t.Helper()
	r := httptest.NewRequestWithContext(api.WithPrincipal(t.Context(), alice), method, path, strings.NewReader(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var env map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &env); err != nil {
		t.Fatalf("%s %s: %d, no envelope: %q", method, path, w.Code, w.Body)
	}
	if ct := w.Header().Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
		t.Errorf("%s %s: Content-Type %q", method, path, ct)
	}
	return w.Code, env
}

// Every refusal is an envelope with the status, the code and the field that
// belong to it, and changes nothing.
func TestRefusals(t *testing.T) {
	h := newHandler(t, newEngine(t))
	for _, c := range []struct {
		method, path, body string
		status             int
		code, field        string
	}{
		{"GET", "/nothing", "", 404, "NOT_FOUND", ""},
		{"GET", "/", "", 404, "NOT_FOUND", ""},
		{"PATCH", "/sandbox", "", 405, "METHOD_NOT_ALLOWED", ""},
		{"PUT", "/sandbox/sbx_x", "", 405, "METHOD_NOT_ALLOWED", ""},
		{"POST", "/sandbox", `{"runtime":7}`, 400, "INVALID", "runtime"},
		{"POST", "/sandbox", `{"resources":{"memory":512}}`, 400, "INVALID", "resources.memory"},
		{"POST", "/sandbox", `{"env":{"A":1}}`, 400, "INVALID", "env"},
		{"POST", "/sandbox", `{"command":{"exec":"ls"}}`, 400, "INVALID", "command.exec"},
		{"POST", "/sandbox", `[]`, 400, "INVALID", ""},
		{"POST", "/sandbox", `{`, 400, "INVALID", ""},
		{"POST", "/sandbox", `{} {}`, 400, "INVALID", ""},
		{"POST", "/sandbox", `hello`, 400, "INVALID", ""},
		{"POST", "/sandbox", `{"resources":{"memory":"lots"}}`, 400, "INVALID", "resources.memory"},
		{"POST", "/sandbox", `{"resources":{"cpu":"-1"}}`, 400, "INVALID", "resources.cpu"},
		{"POST", "/sandbox", `{"resources":{"disk":"1Q"}}`, 400, "INVALID", "resources.disk"},
		{"POST", "/sandbox", `{"resources":{"memory":"1Ki"}}`, 400, "INVALID", "memory"},
		{"POST", "/sandbox", `{"timeout":{"idle":"soon"}}`, 400, "INVALID", "timeout.idle"},
		{"POST", "/sandbox", `{"files":[{"path":"a","content":"***"}]}`, 400, "INVALID", "files[0].content"},
		{"POST", "/sandbox", `{"files":[{"path":"a","content":"","mode":"rwx"}]}`, 400, "INVALID", "files[0].mode"},
		{"POST", "/sandbox", `{"files":[{"path":"../a","content":""}]}`, 400, "INVALID", "files"},
		{"POST", "/sandbox", `{"command":{"exec":[]}}`, 400, "INVALID", "command.exec"},
		{"POST", "/sandbox", `{"command":{"exec":["ls"],"mode":"batch"}}`, 400, "INVALID", "mode"},
		{"POST", "/sandbox", `{"name":"No Name"}`, 400, "INVALID", "name"},
		{"POST", "/sandbox", `{"snapshot":"s","runtime":"host:latest"}`, 400, "INVALID", "snapshot"},
		{"POST", "/sandbox", `{"snapshot":"s"}`, 404, "SNAPSHOT_NOT_FOUND", ""},
		{"POST", "/sandbox", `{"runtime":"nope:1"}`, 404, "RUNTIME_NOT_FOUND", ""},
		{"POST", "/sandbox", `{"dependencies":["curl"]}`, 422, "UNSUPPORTED", "dependencies"},
		{"POST", "/sandbox", `{"stream":{"stdin":"stream_1"}}`, 422, "UNSUPPORTED", "stream.stdin"},
		{"GET", "/sandbox?limit=101", "", 400, "INVALID", "limit"},
		{"GET", "/sandbox?limit=0", "", 400, "INVALID", "limit"},
		{"GET", "/sandbox?limit=-1", "", 400, "INVALID", "limit"},
		{"GET", "/sandbox?offset=x", "", 400, "INVALID", "offset"},
		{"GET", "/sandbox?sort=age", "", 400, "INVALID", "sort"},
		{"GET", "/sandbox?direction=up", "", 400, "INVALID", "direction"},
		{"GET", "/sandbox?status=asleep", "", 400, "INVALID", "status"},
		{"GET", "/sandbox?mode=batch", "", 400, "INVALID", "mode"},
		{"GET", "/sandbox?live=maybe", "", 400, "INVALID", "live"},
		{"GET", "/sandbox/sbx_aaaaaaaaaaaa", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"GET", "/sandbox/no-such-name", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"GET", "/sandbox/%00%2f..%2f", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"GET", "/sandbox/status/sbx_aaaaaaaaaaaa", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"GET", "/sandbox/sbx_aaaaaaaaaaaa?waitForStatus=asleep", "", 400, "INVALID", "waitForStatus"},
		{"GET", "/sandbox/sbx_aaaaaaaaaaaa?waitForStatus=idle&waitMs=never", "", 400, "INVALID", "waitMs"},
		{"DELETE", "/sandbox/sbx_aaaaaaaaaaaa", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"POST", "/sandbox/sbx_aaaaaaaaaaaa/execute", `{"command":["ls"]}`, 404, "SANDBOX_NOT_FOUND", ""},
		{"POST", "/sandbox/sbx_aaaaaaaaaaaa/execute", `{"command":[]}`, 400, "INVALID", "command"},
		{"POST", "/sandbox/sbx_aaaaaaaaaaaa/execute", `{"command":["ls"],"timeout":"1 hour"}`, 400, "INVALID", "timeout"},
		{"GET", "/sandbox/execution/exec_aaaaaaaaaaaa", "", 404, "EXECUTION_NOT_FOUND", ""},
		{"GET", "/sandbox/execution/exec_aaaaaaaaaaaa?wait=x", "", 400, "INVALID", "wait"},
		{"GET", "/sandbox/sandboxes/sbx_aaaaaaaaaaaa/executions", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"GET", "/sandbox/sandboxes/sbx_aaaaaaaaaaaa/events?limit=1000", "", 400, "INVALID", "limit"},
		{"GET", "/sandbox/sandboxes/sbx_aaaaaaaaaaaa/events", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"GET", "/sandbox/runtimes?sort=size", "", 400, "INVALID", "sort"},
		{"DELETE", "/v1/executions/exec_aaaaaaaaaaaa", "", 404, "EXECUTION_NOT_FOUND", ""},
		{"GET", "/v1/streams/exec_aaaaaaaaaaaa/stdout", "", 404, "EXECUTION_NOT_FOUND", ""},
		{"GET", "/v1/streams/exec_aaaaaaaaaaaa/audit", "", 404, "NOT_FOUND", ""},
		{"POST", "/v1/streams/exec_aaaaaaaaaaaa/stdin", "x", 404, "EXECUTION_NOT_FOUND", ""},
		{"POST", "/sandbox/sbx_aaaaaaaaaaaa/pause", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"PATCH", "/sandbox/env/sbx_aaaaaaaaaaaa", `{"env":{"A":1}}`, 400, "INVALID", "env"},
		{"PATCH", "/sandbox/env/sbx_aaaaaaaaaaaa", `{"env":{"A=B":"x"}}`, 400, "INVALID", "env"},
		{"PATCH", "/v1/sandboxes/sbx_aaaaaaaaaaaa", `{"resources":{"memory":"lots"}}`, 400, "INVALID", "resources.memory"},
		{"PATCH", "/v1/sandboxes/sbx_aaaaaaaaaaaa", `{"name":"No Name"}`, 400, "INVALID", "name"},
		{"POST", "/v1/sandboxes/sbx_aaaaaaaaaaaa/fork", `{"name":"No Name"}`, 400, "INVALID", "name"},
		{"GET", "/v1/stats?start=yesterday", "", 400, "INVALID", "start"},
		{"GET", "/v1/stats?start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z", "", 400, "INVALID", "end"},
		{"GET", "/v1/events?type=" + strings.Repeat("a,", 40), "", 400, "INVALID", "type"},
		{"GET", "/v1/events?after=-1", "", 400, "INVALID", "after"},
		{"GET", "/v1/events/follow?after=now", "", 400, "INVALID", "after"},
		{"POST", "/sandbox/sandboxes/sbx_aaaaaaaaaaaa/jobs", `{"command":[]}`, 400, "INVALID", "command"},
		{"POST", "/sandbox/sandboxes/sbx_aaaaaaaaaaaa/jobs", `{"command":["a"],"streams":{"stdout":"stream_1"}}`, 422, "UNSUPPORTED", "stream.stdout"},
		{"GET", "/sandbox/sandboxes/sbx_aaaaaaaaaaaa/jobs?limit=101", "", 400, "INVALID", "limit"},
		{"GET", "/sandbox/sandboxes/sbx_aaaaaaaaaaaa/jobs/job_aaaaaaaaaaaa?wait=x", "", 400, "INVALID", "wait"},
		{"DELETE", "/sandbox/sandboxes/sbx_aaaaaaaaaaaa/jobs/job_aaaaaaaaaaaa?force=very", "", 400, "INVALID", "force"},
		{"GET", "/v1/streams/job_aaaaaaaaaaaa/stdout", "", 404, "JOB_NOT_FOUND", ""},
		{"GET", "/v1/streams/job_aaaaaaaaaaaa/stdout?tail=x", "", 400, "INVALID", "tail"},
		{"GET", "/v1/streams/job_aaaaaaaaaaaa/stdout?follow=x", "", 400, "INVALID", "follow"},
		{"POST", "/fs/sbx_aaaaaaaaaaaa", `{"files":[{"path":"a","content":"***"}]}`, 400, "INVALID", "files[0].content"},
		{"GET", "/fs/sbx_aaaaaaaaaaaa", "", 400, "INVALID", "path"},
		{"GET", "/fs/sbx_aaaaaaaaaaaa?path=a&offset=x", "", 400, "INVALID", "offset"},
		{"GET", "/fs/list/sbx_aaaaaaaaaaaa?limit=1000000", "", 400, "INVALID", "limit"},
		{"GET", "/fs/list/sbx_aaaaaaaaaaaa?path=%00", "", 400, "INVALID", "path"},
		{"GET", "/fs/list/sbx_aaaaaaaaaaaa", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"POST", "/fs/mkdir/sbx_aaaaaaaaaaaa", `{}`, 400, "INVALID", "path"},
		{"POST", "/fs/mkdir/sbx_aaaaaaaaaaaa", `{"path":"a","mode":"rwx"}`, 400, "INVALID", "mode"},
		{"POST", "/fs/rm/sbx_aaaaaaaaaaaa", `{"path":7}`, 400, "INVALID", "path"},
		{"GET", "/fs/download/sbx_aaaaaaaaaaaa?format=rar", "", 400, "INVALID", "format"},
		{"POST", "/fs/upload/sbx_aaaaaaaaaaaa?format=rar", "x", 400, "INVALID", "format"},
		{"PUT", "/v1/sandboxes/sbx_aaaaaaaaaaaa/file?path=a&mode=9", "x", 400, "INVALID", "mode"},
		{"PUT", "/v1/sandboxes/sbx_aaaaaaaaaaaa/file?path=a", "x", 404, "SANDBOX_NOT_FOUND", ""},
		{"POST", "/v1/sandboxes/sbx_aaaaaaaaaaaa/rename", `{"path":"a"}`, 400, "INVALID", "to"},
		{"POST", "/v1/sandboxes/sbx_aaaaaaaaaaaa/chmod", `{"path":"a"}`, 400, "INVALID", "mode"},
		{"POST", "/sandbox/sbx_aaaaaaaaaaaa/snapshot", `{"tag":"no tag"}`, 400, "INVALID", "tag"},
		{"GET", "/sandbox/snapshots?sort=colour", "", 400, "INVALID", "sort"},
		{"GET", "/sandbox/snapshots?limit=0", "", 400, "INVALID", "limit"},
		{"GET", "/sandbox/snapshots/snp_aaaaaaaaaaaa", "", 404, "SNAPSHOT_NOT_FOUND", ""},
		{"GET", "/sandbox/snapshots/public/snp_aaaaaaaaaaaa", "", 404, "SNAPSHOT_NOT_FOUND", ""},
		{"GET", "/sandbox/snapshots/lineage", "", 400, "INVALID", "snapshot"},
		{"GET", "/sandbox/snapshots/lineage?name=none", "", 404, "SNAPSHOT_NOT_FOUND", ""},
		{"PATCH", "/sandbox/snapshots/snp_aaaaaaaaaaaa", `{"tag":"no tag"}`, 400, "INVALID", "tag"},
		{"DELETE", "/sandbox/snapshots/snp_aaaaaaaaaaaa?cascade=all", "", 400, "INVALID", "cascade"},
		{"GET", "/v1/snapshots/snp_aaaaaaaaaaaa/archive", "", 404, "SNAPSHOT_NOT_FOUND", ""},
		{"POST", "/v1/snapshots/import?public=x", "x", 400, "INVALID", "public"},
		{"GET", "/v1/diff?from=snp_a", "", 400, "INVALID", "to"},
		{"GET", "/v1/diff?from=a%2Fb&to=dev", "", 400, "INVALID", "from"},
		{"GET", "/v1/diff?from=a&to=b&limit=0", "", 400, "INVALID", "limit"},
		{"POST", "/sandbox/sbx_aaaaaaaaaaaa/checkpoint", `{"name":"ckpt_x"}`, 400, "INVALID", "name"},
		{"POST", "/sandbox/sbx_aaaaaaaaaaaa/checkpoint/x/restore", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"POST", "/v1/keys", `{"key":"ssh-ed25519 AAAA"}`, 400, "INVALID", "key"},
		{"POST", "/v1/keys", fmt.Sprintf(`{"key":%q,"role":"admin"}`, publicKey), 403, "KEY_DENIED", ""},
		{"POST", "/v1/keys", fmt.Sprintf(`{"key":%q,"role":"king"}`, publicKey), 400, "INVALID", "role"},
		{"POST", "/v1/keys", fmt.Sprintf(`{"key":%q,"expiresAt":"tomorrow"}`, publicKey), 400, "INVALID", ""},
		{"POST", "/v1/api-keys", `{"principal":"bob"}`, 403, "KEY_DENIED", ""},
		{"DELETE", "/v1/keys/SHA256:x", "", 404, "KEY_NOT_FOUND", ""},
		{"DELETE", "/v1/api-keys/key_x", "", 404, "KEY_NOT_FOUND", ""},
	} {
		status, env := ask(t, h, c.method, c.path, c.body)
		field, _ := env["field"].(string)
		if status != c.status || env["success"] != false || env["code"] != c.code || field != c.field || env["message"] == "" {
			t.Errorf("%s %s %s: %d %v; want %d %s field %q", c.method, c.path, c.body, status, env, c.status, c.code, c.field)
		}
	}
	if _, env := ask(t, h, "GET", "/sandbox", ""); env["data"].(map[string]any)["total"] != 0.0 {
		t.Errorf("something was made: %v", env)
	}
}

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIqIKx0/YAhnsL1ZLHRRY8sZ8RclU0k9mrxr5uVdWk0P alice@home"

func TestBodyIsBounded(t *testing.T) {
	h := newHandler(t, newEngine(t))
	body := io.MultiReader(strings.NewReader(`{"description":"`), io.LimitReader(zeros{}, 200<<20), strings.NewReader(`"}`))
	r := httptest.NewRequestWithContext(api.WithPrincipal(t.Context(), alice), http.MethodPost, "/sandbox", body)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "larger than") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

// A foreigner's answers are those of something that is not there, at every
// endpoint that takes an id.
func TestTenants(t *testing.T) {
	h := newHandler(t, newEngine(t))
	a, b := inProcess(h, alice), inProcess(h, bob)
	made := create(t, a, api.CreateRequest{Name: "hers", Command: &api.Command{Exec: []string{"sleep", "600"}}})
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/sandbox/ID", ""}, {"GET", "/sandbox/status/ID", ""}, {"DELETE", "/sandbox/ID", ""},
		{"GET", "/sandbox/ID?waitForStatus=terminated&waitMs=1", ""},
		{"POST", "/sandbox/ID/execute", `{"command":["true"]}`},
		{"GET", "/sandbox/sandboxes/ID/executions", ""}, {"GET", "/sandbox/sandboxes/ID/events", ""},
		{"GET", "/sandbox/execution/EXEC", ""}, {"DELETE", "/v1/executions/EXEC", ""},
		{"GET", "/v1/streams/EXEC/stdout", ""}, {"PUT", "/v1/streams/EXEC/stdin", "x"},
		{"POST", "/sandbox/ID/pause", ""}, {"POST", "/sandbox/ID/resume", ""}, {"PATCH", "/sandbox/env/ID", `{"env":{}}`},
		{"PATCH", "/v1/sandboxes/ID", `{"timeout":{"idle":"1h"}}`}, {"POST", "/v1/sandboxes/ID/fork", `{"timeout":{"idle":"1h"}}`},
		{"GET", "/cli/sandbox/ID", ""}, {"GET", "/v1/sandboxes/ID/usage", ""}, {"GET", "/v1/sandboxes/ID/events/follow", ""},
		{"GET", "/sandbox/sandboxes/ID/jobs", ""}, {"POST", "/sandbox/sandboxes/ID/jobs", `{"command":["true"]}`}, {"GET", "/sandbox/sandboxes/ID/jobs/job_x", ""},
		{"POST", "/fs/ID", `{"files":[{"path":"a","content":""}]}`}, {"GET", "/fs/ID?path=a", ""}, {"GET", "/fs/list/ID", ""},
		{"POST", "/fs/rmdir/ID", `{"path":"a"}`}, {"GET", "/fs/download/ID", ""}, {"POST", "/fs/upload/ID?format=tar", ""},
		{"PUT", "/v1/sandboxes/ID/file?path=a", "x"}, {"GET", "/v1/sandboxes/ID/stat", ""},
		{"POST", "/sandbox/ID/snapshot", ""}, {"POST", "/sandbox/ID/checkpoint", ""}, {"GET", "/sandbox/checkpoints/ID", ""},
		{"POST", "/sandbox/ID/checkpoint/x/restore", ""}, {"DELETE", "/sandbox/ID/checkpoint/x", ""}, {"GET", "/v1/diff?from=ID&to=ID", ""},
	} {
		answer := func(id, exec string) string {
			path := strings.NewReplacer("ID", id, "EXEC", exec).Replace(c.path)
			r := httptest.NewRequestWithContext(api.WithPrincipal(t.Context(), bob), c.method, path, strings.NewReader(c.body))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return fmt.Sprint(w.Code, strings.NewReplacer(id, "ID", exec, "EXEC").Replace(w.Body.String()))
		}
		foreign, missing := answer(made.SandboxID, made.ExecutionID), answer("sbx_aaaaaaaaaaaa", "exec_aaaaaaaaaaaa")
		if foreign != missing || !strings.HasPrefix(foreign, "404") {
			t.Errorf("%s %s: foreign %s, missing %s", c.method, c.path, foreign, missing)
		}
	}
	if list, err := b.List(t.Context(), api.ListRequest{}); err != nil || list.Total != 0 {
		t.Errorf("bob sees %+v, %v", list, err)
	}
	if x, err := a.Execution(t.Context(), made.ExecutionID); err != nil || x.Status != "running" {
		t.Errorf("alice's command: %+v, %v", x, err)
	}
	if err := inProcess(h, admin).Delete(t.Context(), made.SandboxID); err != nil {
		t.Errorf("admin: %v", err)
	}
}

func TestListFilters(t *testing.T) {
	c := inProcess(newHandler(t, newEngine(t)), alice)
	for i, name := range []string{"ann", "ben", "cat"} {
		create(t, c, api.CreateRequest{Name: name, ProjectID: fmt.Sprintf("p%d", i%2)})
	}
	gone := create(t, c, api.CreateRequest{Name: "dan"})
	if err := c.Delete(t.Context(), gone.SandboxID); err != nil {
		t.Fatal(err)
	}
	done := create(t, c, api.CreateRequest{Name: "eve", Command: &api.Command{Exec: []string{"true"}, Mode: "oneshot"}})
	if _, err := c.Status(t.Context(), done.SandboxID, []string{"terminated"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	names := func(r api.ListRequest) string {
		list, err := c.List(t.Context(), r)
		if err != nil {
			return err.Error()
		}
		out := fmt.Sprint(list.Total, ":")
		for _, s := range list.Sandboxes {
			out += " " + s.Name
		}
		return out
	}
	for _, tc := range []struct {
		r    api.ListRequest
		want string
	}{
		{api.ListRequest{}, "3: cat ben ann"},
		{api.ListRequest{Sort: "name", Direction: "asc"}, "3: ann ben cat"},
		{api.ListRequest{Sort: "name", Direction: "asc", Limit: 1, Offset: 1}, "3: ben"},
		{api.ListRequest{ProjectID: "p1"}, "1: ben"},
		{api.ListRequest{Name: "cat"}, "1: cat"},
		{api.ListRequest{Statuses: []string{"deleted"}}, "1: dan"},
		{api.ListRequest{Statuses: []string{"deleted", "terminated"}, Sort: "name"}, "2: eve dan"},
		{api.ListRequest{Mode: "oneshot"}, "0:"},
		{api.ListRequest{Mode: "oneshot", Statuses: []string{"terminated"}}, "1: eve"},
		{api.ListRequest{Offset: 9}, "3:"},
	} {
		if got := names(tc.r); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.r, got, tc.want)
		}
	}
	_, err := c.Get(t.Context(), gone.SandboxID, api.GetOptions{})
	wantFault(t, err, fault.NotFound, "sandbox", "")
	if s, err := c.Get(t.Context(), gone.SandboxID, api.GetOptions{IncludeDeleted: true}); err != nil || s.Status != "deleted" || s.EndedAt.IsZero() {
		t.Errorf("with deleted: %+v, %v", s, err)
	}
	if s, err := c.Get(t.Context(), done.SandboxID, api.GetOptions{}); err != nil || s.ExitCode == nil || *s.ExitCode != 0 || s.StdoutStreamURL == "" {
		t.Errorf("oneshot: %+v, %v", s, err)
	}
	h := newHandler(t, newEngine(t))
	for _, q := range []string{"live=true", "live=false", "deletedOnly=true", "snapshotId=snp_1", "orgId=o"} {
		if status, env := ask(t, h, "GET", "/sandbox?"+q, ""); status != 200 || env["success"] != true {
			t.Errorf("%s: %d %v", q, status, env)
		}
	}
}

// Execute in a sandbox that has ended has the code that clients look for.
func TestTerminated(t *testing.T) {
	h := newHandler(t, newEngine(t))
	made := create(t, inProcess(h, alice), api.CreateRequest{})
	if err := inProcess(h, alice).Delete(t.Context(), made.SandboxID); err != nil {
		t.Fatal(err)
	}
	status, env := ask(t, h, "POST", "/sandbox/"+made.SandboxID+"/execute", `{"command":["true"]}`)
	if status != http.StatusConflict || env["code"] != "SANDBOX_TERMINATED" {
		t.Errorf("%d %v", status, env)
	}
	_, err := inProcess(h, alice).Execute(t.Context(), made.SandboxID, api.ExecuteRequest{Command: []string{"true"}})
	wantFault(t, err, fault.State, "sandbox", "")
}

func TestTimeouts(t *testing.T) {
	c := inProcess(newHandler(t, newEngine(t)), alice)
	made := create(t, c, api.CreateRequest{Command: &api.Command{Exec: []string{"sleep", "600"}, Mode: "oneshot"}, Timeout: &api.Timeouts{Execution: "50ms"}})
	x, err := c.WaitExecution(t.Context(), made.ExecutionID)
	if err != nil || x.Status != "timeout" || x.ExitCode == nil || *x.ExitCode != 124 {
		t.Errorf("%+v, %v", x, err)
	}
	// A wait that ends without the status is an answer, not an error.
	stays := create(t, c, api.CreateRequest{})
	if s, err := c.Get(t.Context(), stays.SandboxID, api.GetOptions{WaitFor: []string{"terminated"}, Wait: time.Millisecond}); err != nil || s.Status != "idle" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestKeys(t *testing.T) {
	c := inProcess(newHandler(t, newEngine(t)), alice)
	expires := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	k, err := c.AddKey(t.Context(), api.AddKeyRequest{Key: publicKey, ExpiresAt: expires})
	if err != nil {
		t.Fatal(err)
	}
	if k.Principal != "alice" || k.Role != keys.Member || k.Comment != "alice@home" || !k.ExpiresAt.Equal(expires) || !strings.HasPrefix(k.Fingerprint, "SHA256:") {
		t.Errorf("added %+v", k)
	}
	_, err = c.AddKey(t.Context(), api.AddKeyRequest{Key: publicKey})
	wantFault(t, err, fault.Exists, "key", "")
	if all, err := c.Keys(t.Context()); err != nil || len(all) != 1 || all[0].Fingerprint != k.Fingerprint {
		t.Errorf("keys = %+v, %v", all, err)
	}
	if err := c.DeleteKey(t.Context(), k.Fingerprint); err != nil {
		t.Error(err)
	}

	made, err := c.AddAPIKey(t.Context(), api.AddAPIKeyRequest{Name: "ci"})
	if err != nil || made.Key == "" || made.Name != "ci" {
		t.Fatalf("API key = %+v, %v", made, err)
	}
	all, err := c.APIKeys(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != made.ID {
		t.Errorf("API keys = %+v, %v", all, err)
	}
	if err := c.DeleteAPIKey(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
}

func TestRuntimesAndInfo(t *testing.T) {
	c := inProcess(newHandler(t, newEngine(t)), alice)
	names := func(sort, direction string, limit, offset int) string {
		list, err := c.Runtimes(t.Context(), sort, direction, limit, offset)
		if err != nil {
			return err.Error()
		}
		out := fmt.Sprint(list.Total, ":")
		for _, r := range list.Runtimes {
			out += " " + r.Name
		}
		return out
	}
	for got, want := range map[string]string{
		names("", "", 0, 0): "2: host:latest base:latest", names("name", "asc", 0, 0): "2: base:latest host:latest",
		names("name", "desc", 1, 1): "2: base:latest", names("", "", 5, 5): "2:",
	} {
		if got != want {
			t.Errorf("runtimes %s, want %s", got, want)
		}
	}
	info, err := c.Info(t.Context())
	if err != nil || info.Version != "1.2.3" || info.SSH != "127.0.0.1:2222" || info.Principal != (api.Who{ID: "alice", Role: "member"}) {
		t.Errorf("info = %+v, %v", info, err)
	}
}

// A panic is one request's misfortune: the answer says nothing of it.
func TestPanic(t *testing.T) {
	h := api.NewHandler(api.Config{As: func(keys.Principal) sandbox.Operations { panic("the inner secret") }})
	status, env := ask(t, h, "GET", "/sandbox", "")
	if status != 500 || env["code"] != "INTERNAL" || strings.Contains(fmt.Sprint(env), "secret") {
		t.Errorf("%d %v", status, env)
	}
}
