package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/api"
)

// Whatever is sent, the answer is an envelope (or the health check's), never a
// failure of the server. Nothing is started: the runtime does not exist.
func FuzzRequest(f *testing.F) {
	e := newEngine(f)
	h := newHandler(f, e)
	for _, seed := range [][3]string{
		{"POST", "/sandbox", `{"runtime":"none","resources":{"memory":"1Gi"},"files":[{"path":"a","content":"YQ=="}]}`},
		{"GET", "/sandbox?limit=1&sort=name&status=idle,running", ""},
		{"GET", "/sandbox/status/x?waitForStatus=idle&waitMs=1", ""},
		{"POST", "/sandbox/x/execute", `{"command":["a"],"timeout":"1s","stream":{"stdin":"pipe"}}`},
		{"PUT", "/v1/streams/exec_x/stdin?token=a.b", "x"},
		{"GET", "/v1/streams/exec_x/stdout", ""},
		{"DELETE", "/v1/keys/SHA256:a%2Fb", ""},
		{"POST", "/v1/keys", `{"key":"ssh-ed25519 AAAA"}`},
		{"GET", "/sandbox/sandboxes/%2e%2e/events?direction=desc&limit=7", ""},
		{"PATCH", "/sandbox/env/x", `{"env":{"A":null}}`},
		{"PATCH", "/v1/sandboxes/x", `{"timeout":{"idle":"1h"},"network":{"allow":null}}`},
		{"POST", "/fs/x", `{"files":[{"path":"/a/../b","content":"YQ==","mode":"7777"}]}`},
		{"PUT", "/v1/sandboxes/x/file?path=a&mode=0644&strict=1", "x"},
		{"POST", "/fs/upload/x?format=zip&path=a", "PK"},
		{"GET", "/sandbox/snapshots/lineage?name=a&tag=b&limit=3", ""},
		{"PATCH", "/sandbox/snapshots/latest", `{"tag":null}`},
		{"POST", "/v1/snapshots/import?tag=x", "x"},
		{"GET", "/v1/diff?from=runtime:none&to=x@y&path=a", ""},
		{"GET", "/v1/stats?start=2026-01-01T00:00:00Z&end=9999-12-31T23:59:59Z&orgId=a", ""},
		{"DELETE", "/sandbox/sandboxes/x/jobs/job_y?force=true", ""},
		{"POST", "/sandbox/x/checkpoint/y/restore", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.ContainsAny(method, " \t\r\n/") || method == "" {
			return
		}
		if u.Path == "/sandbox" && method == http.MethodPost {
			var b map[string]any
			if json.Unmarshal([]byte(body), &b) != nil {
				b = map[string]any{}
			}
			b["runtime"] = "none"
			raw, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			body = string(raw)
		}
		r := (&http.Request{Method: method, URL: u, Header: http.Header{}, Body: http.NoBody}).WithContext(api.WithPrincipal(t.Context(), alice))
		if body != "" {
			r.Body = httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)).Body
		}
		if strings.HasPrefix(u.Path, "/v1/events/follow") { // has no end
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 300 && w.Code < 400 { // a path in a form that the mux mends
			return
		}
		var env struct {
			Success *bool
			Message string
			Code    string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &env); err != nil || env.Success == nil {
			t.Fatalf("%s %s: %d %q", method, target, w.Code, w.Body)
		}
		if w.Code == http.StatusInternalServerError || !*env.Success && (env.Message == "" || env.Code == "") {
			t.Fatalf("%s %s %s: %d %s", method, target, body, w.Code, w.Body)
		}
	})
}
