package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// startSession starts a session of alice's that has printed a line and echoes,
// and returns its end when it has.
func startSession(t *testing.T, e *sandbox.Engine, ref, name string) (sandbox.SessionProcess, <-chan error) {
	t.Helper()
	shown, w := io.Pipe()
	p, err := e.As(alice).OpenSession(t.Context(), ref, sandbox.SessionRequest{
		Name: name, Record: true, From: "192.0.2.1",
		Command: guest.Command{Args: []string{"/bin/sh", "-c", "echo hello; exec cat"}, TTY: &guest.TTY{Term: "xterm", Size: guest.Size{Rows: 30, Cols: 90}}},
	}, guest.Output{Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(shown).ReadString('\n'); err != nil || line != "hello\r\n" {
		t.Fatalf("shown %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, shown) }()
	t.Cleanup(func() { w.Close() })
	ended := make(chan error, 1)
	go func() {
		_, err := p.Wait(context.Background())
		ended <- err
	}()
	t.Cleanup(func() { p.Close() })
	return p, ended
}

func awaitEnd(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

func TestSessions(t *testing.T) {
	e := newEngine(t)
	h := newHandler(t, e)
	for name, c := range doors(t, h) {
		t.Run(name, func(t *testing.T) {
			box := create(t, c, api.CreateRequest{}).SandboxID
			_, ended := startSession(t, e, box, "env") // a word that stands in paths
			list, err := c.Sessions(t.Context(), box, false)
			if err != nil || len(list.Sessions) != 1 || len(list.Sessions[0].Viewers) != 1 {
				t.Fatalf("listed %+v, %v", list, err)
			}
			v := list.Sessions[0].Viewers[0]
			if v.Principal != "alice" || v.From != "192.0.2.1" || v.Mode != "control" || v.Cols != 90 || v.Rows != 30 || v.Since.IsZero() {
				t.Errorf("viewer %+v", v)
			}
			s, err := c.RenameSession(t.Context(), box, "env", "work")
			if err != nil || s.Name != "work" || s.Status != "attached" || !s.Live() || s.Owner != "alice" || s.RecordingID == "" {
				t.Errorf("renamed %+v, %v", s, err)
			}
			if err := c.DetachSession(t.Context(), box, "work"); err != nil {
				t.Error(err)
			}
			awaitEnd(t, ended)
			if s, err := c.Session(t.Context(), box, "work"); err != nil || s.Status != "detached" || s.EndsAt.IsZero() || len(s.Viewers) != 0 {
				t.Errorf("detached %+v, %v", s, err)
			}
			if err := c.KillSession(t.Context(), box, "work"); err != nil {
				t.Error(err)
			}
			if s, err := c.Session(t.Context(), box, s.SessionID); err != nil || s.Live() || s.EndedAt.IsZero() {
				t.Errorf("killed %+v, %v", s, err)
			}
			_, err = c.Session(t.Context(), box, "work")
			wantFault(t, err, fault.NotFound, "session", "")
			for all, want := range map[bool]int{false: 0, true: 1} {
				if list, err := c.Sessions(t.Context(), box, all); err != nil || len(list.Sessions) != want {
					t.Errorf("with ended ones %v: %+v, %v", all, list, err)
				}
			}
			if list, err := c.Sessions(t.Context(), "", false); err != nil || len(list.Sessions) != 0 {
				t.Errorf("of all sandboxes: %+v, %v", list, err)
			}
			_, err = c.RenameSession(t.Context(), box, "work", "")
			wantFault(t, err, fault.Invalid, "", "name")
			_, err = c.Session(t.Context(), box, "..")
			wantFault(t, err, fault.Invalid, "", "session")
		})
	}
}

func TestRecordings(t *testing.T) {
	e := newEngine(t)
	h := newHandler(t, e)
	ofAlice, ofBob, ofAdmin := inProcess(h, alice), inProcess(h, bob), inProcess(h, admin)
	box := create(t, ofAlice, api.CreateRequest{}).SandboxID
	p, ended := startSession(t, e, box, "main")
	opened, _ := p.Session()

	// As it is made, and to its end.
	followed := make(chan error, 1)
	var text bytes.Buffer
	go func() { followed <- ofAlice.ReadRecording(t.Context(), opened.Recording, "text", true, &text) }()
	if _, err := io.WriteString(p, "typed\n\x04"); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, ended)
	awaitEnd(t, followed)
	if got := text.String(); !strings.HasPrefix(got, "hello\n") || !strings.Contains(got, "typed\ntyped\n") {
		t.Errorf("followed %q", got)
	}
	list, err := ofAlice.Recordings(t.Context(), box, 10, 0)
	if err != nil || list.Total != 1 || len(list.Recordings) != 1 {
		t.Fatalf("listed %+v, %v", list, err)
	}
	deadline := time.Now().Add(time.Minute)
	for r := list.Recordings[0]; ; {
		if r.RecordingID != opened.Recording || r.SessionID != opened.ID || r.Session != "main" || r.Owner != "alice" || r.SandboxID != box || r.Input {
			t.Fatalf("recording %+v", r)
		}
		if r.Complete && !r.EndedAt.IsZero() && r.Bytes > 0 {
			break // its end is on record a moment after the last byte
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not end: %+v", r)
		}
		if r, err = ofAlice.Recording(t.Context(), opened.Recording); err != nil {
			t.Fatal(err)
		}
	}
	for format, want := range map[string]string{"": `{"version":2,"width":90,"height":30,`, "asciicast-v3": `{"version":3,"term":{"cols":90,"rows":30,`} {
		var b bytes.Buffer
		if err := ofAlice.ReadRecording(t.Context(), opened.Recording, format, false, &b); err != nil || !strings.HasPrefix(b.String(), want) {
			t.Errorf("%q: %.80q, %v", format, &b, err)
		}
		for line := range strings.Lines(b.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("the line %q", line)
			}
		}
	}
	err = ofAlice.ReadRecording(t.Context(), opened.Recording, "gif", false, io.Discard)
	wantFault(t, err, fault.Invalid, "", "format")

	if list, err := ofBob.Recordings(t.Context(), "", 0, 0); err != nil || list.Total != 0 {
		t.Errorf("a stranger sees %+v, %v", list, err)
	}
	wantFault(t, ofBob.ReadRecording(t.Context(), opened.Recording, "", false, io.Discard), fault.NotFound, "recording", "")
	wantFault(t, ofBob.DeleteRecording(t.Context(), opened.Recording), fault.NotFound, "recording", "")
	wantFault(t, ofAlice.DeleteRecording(t.Context(), opened.Recording), fault.Denied, "recording", "")
	if err := ofAdmin.DeleteRecording(t.Context(), opened.Recording); err != nil {
		t.Fatal(err)
	}
	_, err = ofAdmin.Recording(t.Context(), opened.Recording)
	wantFault(t, err, fault.NotFound, "recording", "")
}

func TestRefusalsOfSessions(t *testing.T) {
	h := newHandler(t, newEngine(t))
	const none = "/v1/sandboxes/sbx_aaaaaaaaaaaa/sessions"
	for _, c := range []struct {
		method, path, body string
		status             int
		code, field        string
	}{
		{"GET", "/v1/sessions?all=maybe", "", 400, "INVALID", "all"},
		{"GET", none, "", 404, "SANDBOX_NOT_FOUND", ""},
		{"GET", none + "/main", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"PATCH", none + "/main", `{"name":7}`, 400, "INVALID", "name"},
		{"PATCH", none + "/main", `{}`, 400, "INVALID", "name"},
		{"PATCH", none + "/main", `{"name":"x"}`, 404, "SANDBOX_NOT_FOUND", ""},
		{"POST", none + "/main/kill", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"POST", none + "/main/detach", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"PUT", none + "/main", "", 405, "METHOD_NOT_ALLOWED", ""},
		{"GET", "/v1/recordings?limit=1000", "", 400, "INVALID", "limit"},
		{"GET", "/v1/recordings?offset=-1", "", 400, "INVALID", "offset"},
		{"GET", "/v1/recordings?sandboxId=sbx_aaaaaaaaaaaa", "", 404, "SANDBOX_NOT_FOUND", ""},
		{"GET", "/v1/recordings/rec_aaaaaaaaaaaa", "", 404, "RECORDING_NOT_FOUND", ""},
		{"GET", "/v1/recordings/rec_aaaaaaaaaaaa/data", "", 404, "RECORDING_NOT_FOUND", ""},
		{"GET", "/v1/recordings/rec_aaaaaaaaaaaa/data?follow=so", "", 400, "INVALID", "follow"},
		{"GET", "/v1/recordings/rec_aaaaaaaaaaaa/data?format=gif", "", 400, "INVALID", "format"},
		{"DELETE", "/v1/recordings/..%2f..%2fstate", "", 404, "RECORDING_NOT_FOUND", ""},
	} {
		status, env := ask(t, h, c.method, c.path, c.body)
		field, _ := env["field"].(string)
		if status != c.status || env["code"] != c.code || field != c.field {
			t.Errorf("%s %s %s: %d %v; want %d %s %s", c.method, c.path, c.body, status, env, c.status, c.code, c.field)
		}
	}
}
