package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// A stream URL, and a door that proved its client long ago, open nothing once
// the key behind them is gone.
func TestRecheck(t *testing.T) {
	var gone atomic.Pointer[fault.Error]
	who := keys.Principal{ID: "alice", Role: keys.Member, KeyID: "key_x", Door: "test"}
	e := newEngine(t)
	h := api.NewHandler(api.Config{
		As: func(p keys.Principal) sandbox.Operations { return e.As(p) },
		Recheck: func(_ context.Context, p keys.Principal) error {
			if p.ID != who.ID || p.Role != who.Role || p.KeyID != who.KeyID {
				t.Errorf("asked about %+v", p)
			}
			if err := gone.Load(); err != nil {
				return err
			}
			return nil
		},
	})
	tcp := httptest.NewServer(h)
	defer tcp.Close()
	stranger, err := api.Dial(tcp.URL, api.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	c := overOneConn(t, h, who)
	defer c.Close()
	made := create(t, c, api.CreateRequest{Command: &api.Command{Exec: []string{"echo", "secret"}, Mode: "oneshot"}})
	if out := output(t, stranger, streamPath(t, made.StdoutStreamURL)); out != "secret\n" {
		t.Fatalf("stdout = %q", out)
	}
	for _, tc := range []struct {
		err    *fault.Error
		status int
		code   fault.Code
	}{
		{fault.New(fault.NotFound, "this key is not registered").About("key"), http.StatusUnauthorized, fault.Denied},
		{fault.New(fault.Denied, "this key has expired").About("key"), http.StatusUnauthorized, fault.Denied},
		{fault.New(fault.Unavailable, "the state database does not answer"), http.StatusServiceUnavailable, fault.Unavailable},
	} {
		gone.Store(tc.err)
		resp, err := http.Get(tcp.URL + streamPath(t, made.StdoutStreamURL))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tc.status {
			t.Errorf("%v: stream URL: status %d, want %d", tc.err, resp.StatusCode, tc.status)
		}
		if _, err := c.List(t.Context(), api.ListRequest{}); !fault.Is(err, tc.code) {
			t.Errorf("%v: list: %v, want %s", tc.err, err, tc.code)
		}
	}
}

// A stream URL made on the strength of a key that expires ends with it.
func TestStreamURLEndsWithKey(t *testing.T) {
	now := time.Now()
	var later atomic.Int64
	e := newEngine(t)
	h := api.NewHandler(api.Config{
		As:  func(p keys.Principal) sandbox.Operations { return e.As(p) },
		Now: func() time.Time { return now.Add(time.Duration(later.Load())) },
	})
	url := func(expires time.Time) string {
		c := inProcess(h, keys.Principal{ID: "alice", Role: keys.Member, KeyID: "key_x", Expires: expires})
		return streamPath(t, create(t, c, api.CreateRequest{Command: &api.Command{Exec: []string{"true"}, Mode: "oneshot"}}).StdoutStreamURL)
	}
	never, soon, late := url(time.Time{}), url(now.Add(time.Hour)), url(now.Add(1000*time.Hour))
	open := func(url string) bool {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
		if w.Code != http.StatusOK && w.Code != http.StatusUnauthorized {
			t.Errorf("status %d", w.Code)
		}
		return w.Code == http.StatusOK
	}
	for _, at := range []struct {
		later             time.Duration
		never, soon, late bool
	}{
		{0, true, true, true},
		{2 * time.Hour, true, false, true},
		{25 * time.Hour, false, false, false},
	} {
		later.Store(int64(at.later))
		if n, s, l := open(never), open(soon), open(late); n != at.never || s != at.soon || l != at.late {
			t.Errorf("after %v: open %v, %v, %v", at.later, n, s, l)
		}
	}
}

// streamPath is the path and token of a stream URL.
func streamPath(t *testing.T, raw string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.URL.RequestURI()
}
