package sshgw

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/api"
)

// apiGateway is a gateway whose API answers with what it was sent. /slow
// answers when it may go on, and /lines without end; both tell when they have
// begun, and why they ended early.
type apiGateway struct {
	*gateway
	begun, goOn chan struct{}
	ended       chan error
}

func newAPIGateway(t *testing.T, options ...option) *apiGateway {
	t.Helper()
	g := &apiGateway{begun: make(chan struct{}, 1), goOn: make(chan struct{}), ended: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := r.Context().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		g.begun <- struct{}{}
		select {
		case <-g.goOn:
			fmt.Fprint(w, "slowly")
		case <-r.Context().Done():
			g.ended <- r.Context().Err()
		}
	})
	mux.HandleFunc("/lines", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			fmt.Fprintln(w, "line")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-g.goOn:
			case <-r.Context().Done():
			}
		}
		g.ended <- r.Context().Err()
	})
	g.gateway = newGateway(t, append(options, func(c *Config) {
		c.API = func(ctx context.Context, p keys.Principal, conn io.ReadWriteCloser) {
			_ = api.ServeConn(ctx, mux, p, conn)
		}
	})...)
	return g
}

func post(path, header, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", path, header, len(body), body)
}

// wait waits for c with the patience of the tests.
func wait[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not after %v\n%s", what, patience, stacks())
	}
	return v
}

// Whoever has sent a request and ends the input gets the answer, and then the
// end: with or without keep-alive, and for every request that was sent whole.
func TestAPIInputEnds(t *testing.T) {
	g := newAPIGateway(t)
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"close":      {post("/echo", "Connection: close\r\n", "hello"), []string{"200 OK", "hello"}},
		"keep-alive": {post("/echo", "", "hello"), []string{"200 OK", "hello"}},
		"two":        {post("/echo", "", "first") + post("/echo", "", "second"), []string{"first", "second"}},
		"half":       {strings.TrimSuffix(post("/echo", "", "hello"), "lo"), []string{"400 Bad Request", "unexpected EOF"}},
		"nothing":    {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				r := run(t, g.ssh("-s", "gw", APISubsystem), strings.NewReader(c.in))
				for _, want := range c.want {
					if r.status != 0 || !strings.Contains(r.stdout, want) {
						t.Fatalf("status %d, stdout %q, stderr %q; want %q in it", r.status, r.stdout, r.stderr, want)
					}
				}
			}
		})
	}
}

// apiChannel opens the API without the ssh program, so that the ends of the
// channel are in the test's hands.
func (g *apiGateway) apiChannel(t *testing.T, c *gossh.Client) gossh.Channel {
	t.Helper()
	ch, requests, err := c.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	ok, err := ch.SendRequest("subsystem", true, gossh.Marshal(struct{ Name string }{APISubsystem}))
	if err != nil || !ok {
		t.Fatalf("subsystem: %v, %v", ok, err)
	}
	return ch
}

func (g *apiGateway) send(t *testing.T, ch gossh.Channel, request string) {
	t.Helper()
	if _, err := io.WriteString(ch, request); err != nil {
		t.Fatal(err)
	}
	if err := ch.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// The answer comes however long after the end of the input, and nothing is
// lost of it.
func TestAPIAnswersHalfClosed(t *testing.T) {
	g := newAPIGateway(t)
	c := g.dial("gw", "alice")
	big := string(noise(1 << 20))
	for range 20 {
		ch := g.apiChannel(t, c)
		g.send(t, ch, post("/slow", "", ""))
		wait(t, g.begun, "the request")
		g.goOn <- struct{}{}
		if out, err := io.ReadAll(ch); err != nil || !strings.HasSuffix(string(out), "slowly") {
			t.Fatalf("answer %q, %v", out, err)
		}
		ch = g.apiChannel(t, c)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.WriteString(ch, post("/echo", "Connection: close\r\n", big))
			_ = ch.CloseWrite()
		}()
		if out, err := io.ReadAll(ch); err != nil || !strings.HasSuffix(string(out), "\r\n\r\n"+big) {
			t.Fatalf("%d bytes of an answer with %d, %v", len(out), len(big), err)
		}
		wait(t, sent, "the request's end")
	}

	// With nothing under way the end of the input is the end.
	ch := g.apiChannel(t, c)
	if _, err := io.WriteString(ch, post("/echo", "", "kept")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(ch)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "kept" || answer.Close {
		t.Fatalf("answer %q, %v; closing: %v", body, err, answer.Close)
	}
	_ = answer.Body.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := in.ReadByte()
		ended <- err
	}()
	g.send(t, ch, "")
	if err := wait(t, ended, "the end of the channel"); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// A stream goes on for a client that still reads, and ends with one that is
// gone: its channel closed, or its connection lost.
func TestAPIStreamEndsWithClient(t *testing.T) {
	g := newAPIGateway(t)
	for name, leave := range map[string]func(*gossh.Client, gossh.Channel) error{
		"channel":    func(_ *gossh.Client, ch gossh.Channel) error { return ch.Close() },
		"connection": func(c *gossh.Client, _ gossh.Channel) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			c := g.dial("gw", "alice")
			ch := g.apiChannel(t, c)
			g.send(t, ch, post("/lines", "", ""))
			lines := bufio.NewScanner(ch)
			for n := 0; n < 5; {
				if !lines.Scan() {
					t.Fatalf("the stream ended after %d lines: %v", n, lines.Err())
				}
				if lines.Text() == "line" {
					n++
					g.goOn <- struct{}{}
				}
			}
			if err := leave(c, ch); err != nil {
				t.Fatal(err)
			}
			if err := wait(t, g.ended, "the end of the stream"); err == nil {
				t.Error("it ended by itself")
			}

			// So does what has said nothing yet, half-closed or not.
			for _, half := range []bool{true, false} {
				c = g.dial("gw", "alice")
				ch = g.apiChannel(t, c)
				if half {
					g.send(t, ch, post("/slow", "", ""))
				} else if _, err := io.WriteString(ch, post("/slow", "", "")); err != nil {
					t.Fatal(err)
				}
				wait(t, g.begun, "the request")
				if err := leave(c, ch); err != nil {
					t.Fatal(err)
				}
				if err := wait(t, g.ended, "the end of the request"); err == nil {
					t.Error("it ended by itself")
				}
			}
		})
	}
}

// A gateway that stops cuts off what is under way, and says so.
func TestAPICutOff(t *testing.T) {
	g := newAPIGateway(t, func(c *Config) { c.Limits.Drain = time.Millisecond })
	cmd := g.ssh("-s", "gw", APISubsystem)
	done := make(chan result, 1)
	go func() { done <- run(t, cmd, strings.NewReader(post("/slow", "", ""))) }()
	wait(t, g.begun, "the request")
	g.stop()
	wait(t, done, "the client's end").expect(t, exitUnknown, "")
	if err := wait(t, g.ended, "the end of the request"); err == nil {
		t.Error("it ended by itself")
	}
}
