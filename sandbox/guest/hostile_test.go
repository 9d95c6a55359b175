package guest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// hostile is a guest that answers every operation with the same bytes.
func hostile(t testing.TB, answer []byte) *guest.Conn {
	t.Helper()
	return hostileOf(t, wire.NewestVersion, answer)
}

// hostileOf is one that speaks a version of the protocol.
func hostileOf(t testing.TB, version int, answer []byte) *guest.Conn {
	t.Helper()
	host, inside := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer inside.Close()
		mux, err := greet(inside, version)
		if err != nil {
			return
		}
		defer mux.Close()
		for {
			st, err := mux.AcceptStream()
			if err != nil {
				return
			}
			go func() {
				go io.Copy(io.Discard, st)
				st.Write(answer)
				st.Close()
			}()
		}
	}()
	c, err := guest.Connect(testContext(t), host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		<-ended
	})
	return c
}

func greet(rwc io.ReadWriteCloser, version int) (*yamux.Session, error) {
	if _, err := wire.ReadOffer(rwc); err != nil {
		return nil, err
	}
	if err := wire.WriteAnswer(rwc, wire.Answer{Protocol: version, Version: "evil", BootID: "evil", Window: wire.Window}); err != nil {
		return nil, err
	}
	return wire.Guest(rwc, wire.Window)
}

// message is a response as it goes over the wire.
func message(json string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(json))), json...)
}

func frames(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func frame(kind wire.Kind, payload string) []byte {
	return wire.AppendFrame(nil, kind, []byte(payload))
}

// use tries everything a host does with a guest, and returns the errors.
func use(t testing.TB, c *guest.Conn) map[string]error {
	ctx := testContext(t)
	results := map[string]error{"ping": c.Ping(ctx)}
	_, results["list"] = c.List(ctx)
	if p, err := c.Start(ctx, guest.Command{ID: "x"}, guest.Output{Stdout: io.Discard}); err != nil {
		results["start"] = err
	} else {
		p.Write(make([]byte, 1000))
		_, results["wait"] = p.Wait(ctx)
		p.Close()
	}
	if f, err := c.ReadFile(ctx, "x"); err != nil {
		results["read"] = err
	} else {
		_, results["read"] = io.Copy(io.Discard, f)
		f.Close()
	}
	results["write"] = c.WriteFile(ctx, "x", 0o600, strings.NewReader("content"))
	if s, err := c.Dial(ctx, "tcp", "127.0.0.1:1"); err != nil {
		results["dial"] = err
	} else {
		_, results["dial"] = io.Copy(io.Discard, s)
		s.Close()
	}
	if l, err := c.Listen(ctx, guest.ListenRequest{Network: "tcp", Address: ":0"}); err != nil {
		results["listen"] = err
	} else {
		_, _, results["accept"] = l.Accept(ctx)
		l.Close()
	}
	if ctx.Err() != nil {
		t.Error("the host waited for a guest that had answered")
	}
	return results
}

// What no guest of ours says ends the connection, with an error that says so.
func TestHostileAnswers(t *testing.T) {
	started := message(`{"result":{"pid":7,"attachment":1,"offset":0}}`)
	for name, answer := range map[string][]byte{
		"nothing":           nil,
		"half a length":     {0, 0},
		"half a message":    message(`{"result":{}}`)[:10],
		"huge message":      {0xff, 0xff, 0xff, 0xff, 'x'},
		"no JSON":           message("hello"),
		"wrong type":        message(`[1]`),
		"deep":              message(strings.Repeat(`[`, 100_000)),
		"deep result":       message(`{"result":` + strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000) + `}`),
		"unknown code":      message(`{"error":{"code":"HACKED","message":"x"}}`),
		"long text":         message(`{"error":{"code":"INVALID","message":"` + strings.Repeat("x", 2000) + `"}}`),
		"negative pid":      message(`{"result":{"pid":-1}}`),
		"large pid":         message(`{"result":{"pid":99999999}}`),
		"negative offset":   message(`{"result":{"pid":1,"offset":-1}}`),
		"overflow":          message(`{"result":{"pid":99999999999999999999999}}`),
		"unknown frame":     frames(started, frame(99, "x")),
		"frame of the host": frames(started, frame(wire.KindCollected, "")),
		"long frame":        frames(started, []byte{byte(wire.KindStdout), 0xff, 0xff, 0xff, 0xff}),
		"cut frame":         frames(started, frame(wire.KindStdout, "hello")[:7]),
		"no exit":           frames(started, frame(wire.KindStdout, "hello")),
		"gap backwards":     frames(started, frame(wire.KindStdout, "hello"), wire.AppendGap(nil, 3)),
		"exit is no JSON":   frames(started, frame(wire.KindExit, "hello")),
		"exit code":         frames(started, frame(wire.KindExit, `{"code":256}`)),
		"negative exit":     frames(started, frame(wire.KindExit, `{"code":-1}`)),
		"exit signal":       frames(started, frame(wire.KindExit, `{"signal":"`+strings.Repeat("X", 1000)+`"}`)),
		"signal and code":   frames(started, frame(wire.KindExit, `{"code":1,"signal":"TERM"}`)),
		"exit offset":       frames(started, frame(wire.KindExit, `{"code":0,"offset":5}`)),
	} {
		t.Run(name, func(t *testing.T) {
			c := hostile(t, answer)
			p, err := c.Start(testContext(t), guest.Command{ID: "x"}, guest.Output{})
			if err == nil {
				_, err = p.Wait(testContext(t))
			}
			if !fault.Is(err, fault.Unavailable) || !errors.Is(err, guest.ErrLost) || !strings.Contains(err.Error(), "broke the protocol") {
				t.Errorf("got %v", err)
			}
			<-c.Done()
			if c.Err() == nil {
				t.Error("the connection knows of no error")
			}
		})
	}
}

func TestHostileList(t *testing.T) {
	for name, list := range map[string]string{
		"negative":   `[{"id":"x","pid":-5}]`,
		"id":         `[{"id":"a b"}]`,
		"no id":      `[{}]`,
		"long label": `[{"id":"x","label":"` + strings.Repeat("x", 1000) + `"}]`,
		"attached":   `[{"id":"x","attached":1000000}]`,
		"exit":       `[{"id":"x","exit":{"code":-1}}]`,
		"time":       `[{"id":"x","started":"yesterday"}]`,
		"many":       `[` + strings.Repeat(`{"id":"x"},`, 400_000) + `{"id":"x"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			c := hostile(t, message(`{"result":`+list+`}`))
			if infos, err := c.List(testContext(t)); !errors.Is(err, guest.ErrLost) {
				t.Errorf("%d entries, %v", len(infos), err)
			}
		})
	}
	c := hostile(t, message(`{"result":[{"id":"x","title":"\u001b[2Jboo\n","label":"a\u202eb"}]}`))
	infos, err := c.List(testContext(t))
	if err != nil || infos[0].Title != "[2Jboo" || infos[0].Label != "a b" {
		t.Errorf("%+v %v", infos, err)
	}
}

// A text of the guest reaches people as one harmless line.
func TestHostileErrorText(t *testing.T) {
	c := hostile(t, message(`{"error":{"code":"DENIED","message":"a\u001b[31m\nb\u0007"}}`))
	if err := c.Ping(testContext(t)); !fault.Is(err, fault.Denied) || err.Error() != "a [31m b" {
		t.Errorf("%q", err)
	}
}

func TestHostileHandshake(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":      "",
		"endless line": strings.Repeat("x", 1<<20),
		"shell":        "sh: 1: guest: not found\n",
		"more behind":  `{"protocol":1,"version":"v","bootId":"b","window":1048576}` + "\nmore",
		"version":      `{"protocol":7,"version":"v","bootId":"b","window":1048576}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			host, inside := net.Pipe()
			go func() {
				wire.ReadOffer(inside)
				io.WriteString(inside, answer)
				inside.Close()
			}()
			if _, err := guest.Connect(testContext(t), host); !fault.Is(err, fault.Unavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("other protocol", func(t *testing.T) {
		host, inside := net.Pipe()
		go func() {
			wire.ReadOffer(inside)
			wire.WriteAnswer(inside, wire.Answer{Protocol: 9, Error: "too old"})
			inside.Close()
		}()
		_, err := guest.Connect(testContext(t), host)
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "speaks protocol 9") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("silence", func(t *testing.T) {
		host, inside := net.Pipe()
		defer inside.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if _, err := guest.Connect(ctx, host); !fault.Is(err, fault.Timeout) {
			t.Errorf("got %v", err)
		}
	})
}

// A guest that is silent, or does not even read, costs its callers no more
// than their patience.
func TestSilentGuest(t *testing.T) {
	for name, read := range map[string]bool{"reads": true, "reads nothing": false} {
		t.Run(name, func(t *testing.T) {
			host, inside := net.Pipe()
			go func() {
				if _, err := wire.ReadOffer(inside); err != nil {
					return
				}
				wire.WriteAnswer(inside, wire.Answer{Protocol: 1, Version: "v", BootID: "b", Window: wire.Window})
				if read {
					io.Copy(io.Discard, inside)
				}
			}()
			defer inside.Close()
			c, err := guest.Connect(testContext(t), host)
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				if err := c.Ping(ctx); !fault.Is(err, fault.Timeout) {
					t.Errorf("ping: %v", err)
				}
				if _, err := c.Start(ctx, guest.Command{ID: "x"}, guest.Output{}); !fault.Is(err, fault.Timeout) {
					t.Errorf("start: %v", err)
				}
				cancel()
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				c.Close()
			}()
			select {
			case <-closed:
			case <-testContext(t).Done():
				t.Error("the connection cannot be closed")
			}
		})
	}
}

// Opening streams to the host and pinging it would make it allocate without
// end; each is the end of the connection.
func TestHostileMultiplexer(t *testing.T) {
	for name, attack := range map[string]func(*yamux.Session){
		"opens a stream": func(m *yamux.Session) { m.OpenStream() },
		"pings":          func(m *yamux.Session) { m.Ping() },
	} {
		t.Run(name, func(t *testing.T) {
			host, inside := net.Pipe()
			go func() {
				if mux, err := greet(inside, wire.NewestVersion); err == nil {
					attack(mux)
					<-mux.CloseChan()
				}
			}()
			defer inside.Close()
			c, err := guest.Connect(testContext(t), host)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			select {
			case <-c.Done():
			case <-testContext(t).Done():
				t.Fatal("the connection goes on")
			}
			if err := c.Err(); !strings.Contains(fmt.Sprint(err), "broke the protocol") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzHostFrames lets a guest answer anything. The host must come to an end
// with all it does, and not panic.
func FuzzHostFrames(f *testing.F) {
	started := message(`{"result":{"pid":7,"attachment":1,"offset":0}}`)
	for _, seed := range [][]byte{
		started,
		frames(started, frame(wire.KindStdout, "out"), frame(wire.KindStderr, "err"), frame(wire.KindExit, `{"code":0,"offset":6}`)),
		frames(started, wire.AppendGap(nil, 100), frame(wire.KindExit, `{"signal":"TERM","offset":100}`)),
		frames(message(`{"result":{"size":5,"mode":420}}`), frame(wire.KindData, "hello"), frame(wire.KindResult, `{}`)),
		frames(message(`{}`), frame(wire.KindResult, `{"error":{"code":"EXHAUSTED","message":"full"}}`)),
		frames(message(`{"result":{"attachment":3}}`), frame(wire.KindData, "x"), frame(wire.KindEOF, "")),
		message(`{"result":[{"id":"a","pid":1}]}`),
		frames(message(`{"result":{"address":"127.0.0.1:80","listener":1}}`), frame(wire.KindConnected, `{"number":1,"peer":"127.0.0.1:9"}`), frame(wire.KindResult, `{"error":{"code":"EXHAUSTED","message":"x"}}`)),
		message(`{"error":{"code":"NOT_FOUND","field":"x","message":"no"}}`),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		c := hostile(t, answer)
		for what, err := range use(t, c) {
			if err == nil {
				continue
			}
			if _, ok := errors.AsType[*fault.Error](err); !ok {
				t.Errorf("%s: %v is not a fault", what, err)
			}
			if text := err.Error(); strings.ContainsAny(text, "\x1b\n\r\x00") || len(text) > 2*wire.MaxText {
				t.Errorf("%s: %q", what, text)
			}
		}
	})
}
