package github_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/keys/github"
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIqIKx0/YAhnsL1ZLHRRY8sZ8RclU0k9mrxr5uVdWk0P"

func TestFetch(t *testing.T) {
	block := make(chan struct{})
	mux := http.NewServeMux()
	answer := func(path string, status int, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	answer("/alice.keys", http.StatusOK, key+"\nssh-dss AAAA\n"+key+" own comment\n")
	answer("/empty.keys", http.StatusOK, "")
	answer("/broken.keys", http.StatusBadGateway, "<html>")
	answer("/html.keys", http.StatusOK, "<html>\n<body>\n")
	answer("/long.keys", http.StatusOK, strings.Repeat("x", 300<<10))
	answer("/many.keys", http.StatusOK, strings.Repeat("x\n", 2000))
	answer("/sub/alice.keys", http.StatusOK, key)
	mux.HandleFunc("GET /slow.keys", func(_ http.ResponseWriter, r *http.Request) { // answers when the client has gone
		select {
		case <-r.Context().Done():
		case <-block:
		}
	})
	mux.HandleFunc("GET /cut.keys", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(key))
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	defer close(block)

	parsed, rejected, err := github.Fetch(t.Context(), srv.Client(), srv.URL, "alice")
	if err != nil || len(parsed) != 1 || len(rejected) != 2 {
		t.Fatal(parsed, rejected, err)
	}
	if host := strings.TrimPrefix(srv.URL, "http://"); parsed[0].Key.Comment != "alice@"+host || parsed[0].Key.PublicKey != key {
		t.Errorf("got %+v", parsed[0])
	}
	if parsed, _, err := github.Fetch(t.Context(), srv.Client(), srv.URL+"/sub/", "alice"); err != nil || len(parsed) != 1 {
		t.Error("base with a path:", parsed, err)
	}
	if parsed, rejected, err := github.Fetch(t.Context(), srv.Client(), srv.URL, "html"); err != nil || len(parsed) != 0 || len(rejected) != 2 {
		t.Error("no keys:", parsed, rejected, err)
	}

	for user, want := range map[string]struct {
		is   error
		text string
	}{
		"nobody":                {github.ErrNone, `there is no user "nobody" on 127.0.0.1`},
		"empty":                 {github.ErrNone, "empty has no public keys on 127.0.0.1"},
		"broken":                {nil, "answers 502 Bad Gateway: try again later"},
		"long":                  {nil, "longer than 256 KiB"},
		"many":                  {nil, "more than 1000 keys"},
		"cut":                   {nil, "cannot be reached from here: save http"},
		"":                      {github.ErrUser, "is not the name of a GitHub user"},
		"../../etc/passwd":      {github.ErrUser, "is not the name of a GitHub user"},
		"a--b":                  {github.ErrUser, "is not the name of a GitHub user"},
		"-a":                    {github.ErrUser, "is not the name of a GitHub user"},
		"alice?x=":              {github.ErrUser, "is not the name of a GitHub user"},
		"alice\n":               {github.ErrUser, "is not the name of a GitHub user"},
		strings.Repeat("a", 40): {github.ErrUser, "is not the name of a GitHub user"},
	} {
		t.Run(user, func(t *testing.T) {
			_, _, err := github.Fetch(t.Context(), srv.Client(), srv.URL, user)
			if err == nil || !strings.Contains(err.Error(), want.text) {
				t.Fatalf("got %v, want %q", err, want.text)
			}
			if errors.Is(err, github.ErrUser) != (want.is == github.ErrUser) || errors.Is(err, github.ErrNone) != (want.is == github.ErrNone) { //nolint:errorlint // the sentinels themselves
				t.Errorf("%v does not match %v alone", err, want.is)
			}
		})
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := github.Fetch(ctx, srv.Client(), srv.URL, "slow"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if _, _, err := github.Fetch(t.Context(), srv.Client(), "not an address", "alice"); err == nil {
		t.Errorf("no address: got %v", err)
	}
}

func TestFetchUnreachable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	_, _, err := github.Fetch(t.Context(), srv.Client(), srv.URL, "alice")
	if err == nil || errors.Is(err, github.ErrNone) || !strings.Contains(err.Error(), "/alice.keys into a file elsewhere") {
		t.Errorf("got %v", err)
	}
}
