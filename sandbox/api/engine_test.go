package api_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/store"
)

var (
	admin = keys.Principal{ID: "root", Role: keys.Admin, Door: "test"}
	alice = keys.Principal{ID: "alice", Role: keys.Member, Door: "test"}
	bob   = keys.Principal{ID: "bob", Role: keys.Member, Door: "test"}
)

// images is a catalog with one runtime, whose files are an empty folder.
type images struct{ layer string }

func (i images) Runtimes(context.Context) ([]sandbox.Runtime, error) {
	return []sandbox.Runtime{
		{ID: "srt_host", Name: "host:latest", Description: "this machine", Tags: []string{"test"}, Ready: true, Requirements: sandbox.Limits{MemoryBytes: 64 << 20}},
		{ID: "srt_base", Name: "base:latest"},
	}, nil
}

func (i images) Provide(_ context.Context, name string, progress func(string)) (sandbox.Runtime, sandbox.Rootfs, error) {
	if name != "host:latest" && name != "srt_host" {
		return sandbox.Runtime{}, sandbox.Rootfs{}, fault.New(fault.NotFound, "no runtime %q", name).About("runtime")
	}
	progress("unpacking one layer")
	return sandbox.Runtime{ID: "srt_host", Name: "host:latest", Source: "this host"}, sandbox.Rootfs{Layers: []string{i.layer}}, nil
}

func (i images) ProvideDigest(context.Context, sandbox.RuntimeRef) (sandbox.Rootfs, error) {
	return sandbox.Rootfs{Layers: []string{i.layer}}, nil
}

// newEngine is a real engine and store over a driver without walls.
func newEngine(t testing.TB) *sandbox.Engine {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "state.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	host := fake.NewHost()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e, err := sandbox.NewEngine(t.Context(), sandbox.Config{
		Driver: fake.New(fake.Config{Host: host}), Store: st, Images: images{t.TempDir()},
		Guest: driver.Guest{Path: program}, GuestDigest: "test", OutputDir: filepath.Join(dir, "executions"),
		DefaultRuntime: "host:latest",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{e, host, st} {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return e
}

// newHandler serves an engine; requests that come over a network are those of
// the API key "sgk_NAME", for alice and bob.
func newHandler(t testing.TB, e *sandbox.Engine) http.Handler {
	t.Helper()
	return api.NewHandler(api.Config{
		As: func(p keys.Principal) sandbox.Operations { return e.As(p) },
		Principal: func(r *http.Request) (keys.Principal, error) {
			switch r.Header.Get("Authorization") {
			case "Bearer sgk_alice":
				return alice, nil
			case "Bearer sgk_bob":
				return bob, nil
			}
			return keys.Principal{}, fault.New(fault.Denied, "an API key is needed")
		},
		Info:    func() api.Info { return api.Info{SSH: "127.0.0.1:2222", Engine: "fake"} },
		Version: "1.2.3",
	})
}

// inProcess is a client of h for who.
func inProcess(h http.Handler, who keys.Principal) *api.Client {
	return api.NewClient(api.InProcess(h, who))
}

// doors are clients of one handler for alice, by every way there is.
func doors(t *testing.T, h http.Handler) map[string]*api.Client {
	t.Helper()
	unix := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", unix)
	if err != nil {
		t.Fatal(err)
	}
	local := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(api.WithPrincipal(r.Context(), alice)))
	})}}
	local.Start()
	t.Cleanup(local.Close)
	tcp := httptest.NewServer(h)
	t.Cleanup(tcp.Close)

	out := map[string]*api.Client{"in process": inProcess(h, alice), "one connection": overOneConn(t, h, alice)}
	for name, dial := range map[string]struct {
		host string
		cfg  api.DialConfig
	}{"unix": {"unix://" + unix, api.DialConfig{}}, "http": {tcp.URL, api.DialConfig{APIKey: "sgk_alice"}}} {
		c, err := api.Dial(dial.host, dial.cfg)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = c
	}
	for _, c := range out {
		t.Cleanup(func() { _ = c.Close() })
	}
	return out
}

// overOneConn is a client whose requests share one byte stream, as they do
// over an SSH channel.
func overOneConn(t *testing.T, h http.Handler, who keys.Principal) *api.Client {
	t.Helper()
	client, server := net.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { _ = api.ServeConn(ctx, h, who, server) })
	t.Cleanup(func() {
		stop()
		served.Wait()
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	conns := make(chan net.Conn, 1)
	conns <- client
	return api.NewClient(&http.Transport{
		Protocols:       protocols,
		TLSClientConfig: &tls.Config{},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-conns:
				return c, nil
			default:
				return nil, net.ErrClosed
			}
		},
	})
}

// create makes a sandbox.
func create(t testing.TB, c *api.Client, r api.CreateRequest) api.Created {
	t.Helper()
	made, err := c.Create(t.Context(), r, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// output reads a stream to its end.
func output(t testing.TB, c *api.Client, url string) string {
	t.Helper()
	var b strings.Builder
	if err := c.ReadStream(t.Context(), url, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// wantFault checks code, kind and field of an error.
func wantFault(t testing.TB, err error, code fault.Code, kind, field string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %s", code)
		return
	}
	if e := fault.From(err); e.Code != code || e.Kind != kind || e.Field != field || e.Message == "" {
		t.Errorf("error %q: code %s kind %q field %q; want %s %q %q", e, e.Code, e.Kind, e.Field, code, kind, field)
	}
}
