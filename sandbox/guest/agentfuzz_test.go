package guest_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// rawHost speaks to an agent without any of the host's manners.
func rawHost(t *testing.T, cfg agent.Config) *yamux.Session {
	t.Helper()
	host, inside := net.Pipe()
	a := agent.New(cfg)
	served := make(chan struct{})
	go func() {
		defer close(served)
		a.Serve(context.Background(), inside)
	}()
	offer := wire.Offer{Oldest: 1, Newest: wire.NewestVersion, Window: wire.Window}
	if err := wire.WriteOffer(host, offer); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.ReadAnswer(host, offer); err != nil {
		t.Fatal(err)
	}
	mux, err := wire.Host(host, wire.Window)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mux.Close()
		<-served
		a.Shutdown()
	})
	return mux
}

// exchange sends bytes as an operation and reads the answer, if there is one.
func exchange(t *testing.T, mux *yamux.Session, sent []byte, patience time.Duration) (wire.Response, bool) {
	t.Helper()
	st, err := mux.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Write(sent); err != nil {
		t.Fatal(err)
	}
	var response wire.Response
	st.SetReadDeadline(time.Now().Add(patience))
	return response, wire.ReadMessage(st, &response, wire.MaxResponse) == nil
}

// harmless rewrites a request so that whatever a fuzzer makes of it stays
// within dir: agents in tests are processes of this host.
func harmless(dir string, raw []byte) []byte {
	var req wire.Request
	if json.Unmarshal(raw, &req) != nil {
		return raw // the agent will not understand it either
	}
	var args any
	switch req.Op {
	case wire.OpStart:
		var cmd guest.Command
		if json.Unmarshal(req.Args, &cmd) != nil {
			return raw
		}
		if len(cmd.Args) > 0 {
			cmd.Args[0] = "true"
		}
		if cmd.Script != "" {
			cmd.Script = ":"
		}
		if len(cmd.Args) == 0 && cmd.Script == "" {
			cmd.Args = []string{"true"}
		}
		cmd.Env, cmd.Dir = nil, ""
		if cmd.Builtin != "" {
			cmd.Args = nil
		}
		args = cmd
	case wire.OpListen:
		var listen wire.Listen
		if json.Unmarshal(req.Args, &listen) != nil {
			return raw
		}
		if listen.Network == "tcp" {
			listen.Address = "127.0.0.1:0"
		} else if listen.Address != "" {
			listen.Address = filepath.Join(dir, filepath.Base(listen.Address))
		}
		args = listen
	case wire.OpDial:
		var dial wire.Dial
		if json.Unmarshal(req.Args, &dial) != nil {
			return raw
		}
		dial.Address = "127.0.0.1:1"
		args = dial
	case wire.OpShutdown:
		return []byte(`{"op":"ping"}`)
	default:
		if args = harmlessFile(dir, req); args == nil {
			return raw
		}
	}
	encoded, err := json.Marshal(args)
	if err != nil {
		return nil
	}
	out, err := json.Marshal(wire.Request{Op: req.Op, Args: encoded})
	if err != nil {
		return nil
	}
	return out
}

// FuzzAgentRequest sends any request. The agent answers or does not, and goes
// on either way.
func FuzzAgentRequest(f *testing.F) {
	for _, seed := range []string{
		`{"op":"ping"}`, `{"op":"list"}`, `{"op":"start","args":{"id":"a","args":["x"],"user":"0:5","tty":{"term":"x","size":{"rows":1},"modes":{"1":3}}}}`,
		`{"op":"attach","args":{"id":"a","from":-1}}`, `{"op":"detach","args":{"attachment":1}}`, `{"op":"signal","args":{"id":"a","signal":"TERM"}}`,
		`{"op":"resize","args":{"id":"a","rows":1,"cols":65535}}`, `{"op":"hangup","args":{"id":"a"}}`, `{"op":"close-output","args":{"id":"a"}}`,
		`{"op":"write","args":{"path":"a","mode":420}}`, `{"op":"read","args":{"path":"a"}}`, `{"op":"dial","args":{"network":"unix","address":"x"}}`,
		`{"op":"listen","args":{"network":"unix","address":"x","replace":true,"user":"0"}}`, `{"op":"listen","args":{"network":"tcp","address":":0"}}`,
		`{"op":"accept","args":{"listener":1,"number":1}}`, `{"op":"start","args":{"id":"a","builtin":"sftp-server"}}`,
		`{"op":"none"}`, `{}`, `[]`, `{"op":"start","args":null}`, `{"op":"start","args":[[[]]]}`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	for _, seed := range fileSeeds {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, framed bool) {
		dir := t.TempDir()
		mux := rawHost(t, agent.Config{Workspace: dir, HangupGrace: time.Millisecond, ShutdownGrace: 10 * time.Millisecond})
		if !framed {
			// Bytes that announce more than they are get no answer.
			if len(raw) >= 4 && int(binary.BigEndian.Uint32(raw)) <= len(raw)-4 {
				raw = raw[4 : 4+binary.BigEndian.Uint32(raw)]
				framed = true
			}
		}
		sent := raw
		if framed {
			sent = message(string(harmless(dir, raw)))
		}
		if response, ok := exchange(t, mux, sent, 50*time.Millisecond); ok && response.Error != nil {
			if response.Error.Code == "" || response.Error.Message == "" || len(response.Error.Message) > wire.MaxText {
				t.Errorf("%s was answered with %+v", raw, response.Error)
			}
		}
		if response, ok := exchange(t, mux, message(`{"op":"ping"}`), time.Minute); !ok || response.Error != nil {
			t.Errorf("after %q the agent does not answer", raw)
		}
	})
}

// FuzzAgentFrames sends any frames as the input of a process.
func FuzzAgentFrames(f *testing.F) {
	f.Add(frames(frame(wire.KindData, "hello"), frame(wire.KindEOF, "")), false)
	f.Add(frames(frame(wire.KindData, "hello\n"), frame(wire.KindEOF, ""), frame(wire.KindData, "more")), true)
	f.Add(frames(frame(wire.KindCollected, "")), false)
	f.Add(frames(frame(wire.KindExit, "{}")), true)
	f.Fuzz(func(t *testing.T, input []byte, tty bool) {
		mux := rawHost(t, agent.Config{Workspace: t.TempDir(), HangupGrace: time.Millisecond, ShutdownGrace: 10 * time.Millisecond})
		st, err := mux.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		start := `{"op":"start","args":{"id":"x","args":["cat"]}}`
		if tty {
			start = `{"op":"start","args":{"id":"x","args":["cat"],"tty":{}}}`
		}
		var response wire.Response
		if _, err := st.Write(message(start)); err != nil {
			t.Fatal(err)
		}
		if err := wire.ReadMessage(st, &response, wire.MaxResponse); err != nil || response.Error != nil {
			t.Fatal(err, response)
		}
		go io.Copy(io.Discard, st) // ends with the connection
		if _, err := st.Write(input); err != nil {
			t.Fatal(err)
		}
		st.Close()
		if _, ok := exchange(t, mux, message(`{"op":"hangup","args":{"id":"x"}}`), time.Minute); !ok {
			t.Errorf("after %q the agent does not answer", input)
		}
	})
}
