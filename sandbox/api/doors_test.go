package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// The life of a sandbox is the same through every door.
func TestEveryDoor(t *testing.T) {
	h := newHandler(t, newEngine(t))
	for name, c := range doors(t, h) {
		t.Run(name, func(t *testing.T) {
			var progress []string
			made, err := c.Create(t.Context(), api.CreateRequest{
				Name: "dev", Description: "a box", Env: map[string]string{"GREETING": "hello"},
				Resources: &api.Resources{Memory: "512Mi", CPU: "0.5"}, Timeout: &api.Timeouts{Idle: "10m"},
				Files: []api.File{{Path: "bin/hi", Content: base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\necho $GREETING $1\n")), Mode: "0755"}},
			}, "", func(line string) { progress = append(progress, line) })
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(progress, []string{"unpacking one layer"}) {
				t.Errorf("progress = %q", progress)
			}
			defer func() {
				if err := c.Delete(context.WithoutCancel(t.Context()), "dev"); err != nil {
					t.Error(err)
				}
			}()

			s, err := c.Get(t.Context(), "dev", api.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if s.SandboxID != made.SandboxID || s.Status != "idle" || s.Resources.Memory != "512Mi" || s.Resources.CPU != "500m" || s.Timeout.Idle != "10m" || s.User.ID != "alice" {
				t.Errorf("get = %+v", s)
			}

			x, err := c.Execute(t.Context(), "dev", api.ExecuteRequest{Command: []string{"sh", "-c", "./bin/hi you; echo oops >&2; exit 4"}})
			if err != nil {
				t.Fatal(err)
			}
			if out := output(t, c, x.StdoutStreamURL); out != "hello you\n" {
				t.Errorf("stdout = %q", out)
			}
			if out := output(t, c, x.StderrStreamURL); out != "oops\n" {
				t.Errorf("stderr = %q", out)
			}
			x, err = c.WaitExecution(t.Context(), x.ExecutionID)
			if err != nil {
				t.Fatal(err)
			}
			if x.Status != "failed" || x.ExitCode == nil || *x.ExitCode != 4 || x.DurationMs == nil || x.CompletedAt.IsZero() {
				t.Errorf("execution = %+v", x)
			}

			list, err := c.Executions(t.Context(), "dev", 0)
			if err != nil || len(list.Executions) != 1 || list.Executions[0].ExecutionID != x.ExecutionID {
				t.Errorf("executions = %+v, %v", list, err)
			}
			newest, err := c.Events(t.Context(), "dev", 2, true)
			if err != nil || len(newest.Events) != 2 || newest.Events[0].Type != "execution:ended" || newest.Events[0].Seq != newest.Events[1].Seq+1 {
				t.Errorf("newest events = %+v, %v", newest, err)
			}
			oldest, err := c.Events(t.Context(), "dev", 1, false)
			if err != nil || len(oldest.Events) != 1 || oldest.Events[0].Type != "create" {
				t.Errorf("oldest events = %+v, %v", oldest, err)
			}
		})
	}
}

// Bytes pass unchanged, both ways, while the command runs.
func TestStreamsThroughEveryDoor(t *testing.T) {
	h := newHandler(t, newEngine(t))
	for name, c := range doors(t, h) {
		t.Run(name, func(t *testing.T) {
			made := create(t, c, api.CreateRequest{
				Command: &api.Command{Exec: []string{"cat"}, Mode: "oneshot"}, Stream: &api.StreamConfig{Stdin: api.StreamPipe, Stderr: api.StreamIgnore},
			})
			if made.StderrStreamURL != "" || made.StdinStreamURL == "" {
				t.Fatalf("created = %+v", made)
			}
			stdin, feed := io.Pipe()
			sent := make(chan error, 1)
			go func() { sent <- c.WriteStream(t.Context(), made.StdinStreamURL, stdin) }()
			echo, got := io.Pipe()
			received := make(chan error, 1)
			go func() {
				err := c.ReadStream(t.Context(), made.StdoutStreamURL, got)
				got.Close()
				received <- err
			}()

			// A line comes back while the next has not been written.
			for _, line := range []string{"one\n", "two\n", "\x00\xff\x1b\n"} {
				if _, err := io.WriteString(feed, line); err != nil {
					t.Fatal(err)
				}
				back := make([]byte, len(line))
				if _, err := io.ReadFull(echo, back); err != nil || string(back) != line {
					t.Fatalf("sent %q, got %q, %v", line, back, err)
				}
			}
			bulk := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
			go func() {
				_, _ = feed.Write(bulk)
				feed.Close()
			}()
			if rest, err := io.ReadAll(echo); err != nil || !bytes.Equal(rest, bulk) {
				t.Fatalf("bulk: %d of %d bytes, %v", len(rest), len(bulk), err)
			}
			if err := errors.Join(<-sent, <-received); err != nil {
				t.Fatal(err)
			}
			st, err := c.Status(t.Context(), made.SandboxID, []string{"terminated"}, time.Minute)
			if err != nil || st.Status != "terminated" || st.ExitCode == nil || *st.ExitCode != 0 {
				t.Errorf("status = %+v, %v", st, err)
			}
		})
	}
}

// Whoever gives up reading or writing gets their hands free, although the
// command goes on and their own input never ends.
func TestGivingUp(t *testing.T) {
	h := newHandler(t, newEngine(t))
	for name, c := range doors(t, h) {
		t.Run(name, func(t *testing.T) {
			made := create(t, c, api.CreateRequest{})
			defer func() { _ = c.Delete(context.WithoutCancel(t.Context()), made.SandboxID) }()
			x, err := c.Execute(t.Context(), made.SandboxID, api.ExecuteRequest{Command: []string{"sh", "-c", "echo up; exec sleep 600"}, Stream: &api.StreamConfig{Stdin: api.StreamPipe}})
			if err != nil {
				t.Fatal(err)
			}
			never, feed := io.Pipe()
			defer feed.Close()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 2)
			up := make(chan struct{})
			go func() { ended <- c.WriteStream(ctx, x.StdinStreamURL, never) }()
			go func() { ended <- c.ReadStream(ctx, x.StdoutStreamURL, writerFunc(func([]byte) { close(up) })) }()
			<-up
			stop()
			for range 2 {
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("after giving up: %v", err)
				}
			}
			if _, err := c.Execute(t.Context(), made.SandboxID, api.ExecuteRequest{Command: []string{"true"}}); !fault.Is(err, fault.Busy) || fault.From(err).Kind != "sandbox" {
				t.Errorf("a second command: %v", err)
			}
			if err := c.Cancel(t.Context(), x.ExecutionID); err != nil {
				t.Fatal(err)
			}
			x, err = c.WaitExecution(t.Context(), x.ExecutionID)
			if err != nil || x.Status != "cancelled" {
				t.Errorf("cancelled: %+v, %v", x, err)
			}
		})
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// A writer's own error ends the reading and comes back as it is.
func TestReaderGone(t *testing.T) {
	c := inProcess(newHandler(t, newEngine(t)), alice)
	made := create(t, c, api.CreateRequest{Command: &api.Command{Exec: []string{"yes"}, Mode: "oneshot"}})
	gone := errors.New("gone")
	pr, pw := io.Pipe()
	_ = pr.CloseWithError(gone)
	if err := c.ReadStream(t.Context(), made.StdoutStreamURL, pw); !errors.Is(err, gone) {
		t.Errorf("ReadStream = %v", err)
	}
	if err := c.Delete(t.Context(), made.SandboxID); err != nil {
		t.Fatal(err)
	}
	if x, err := c.WaitExecution(t.Context(), made.ExecutionID); err != nil || x.Status == "completed" {
		t.Errorf("after delete: %+v, %v", x, err)
	}
}

func TestStreamURLNeedsNoKey(t *testing.T) {
	h := newHandler(t, newEngine(t))
	d := doors(t, h)
	made := create(t, d["http"], api.CreateRequest{Command: &api.Command{Exec: []string{"echo", "secret"}, Mode: "oneshot"}})
	if !strings.HasPrefix(made.StdoutStreamURL, d["http"].Host()+"/v1/streams/"+made.ExecutionID+"/stdout?token=") {
		t.Errorf("URL = %q", made.StdoutStreamURL)
	}
	stranger, err := api.Dial(d["http"].Host(), api.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if out := output(t, stranger, made.StdoutStreamURL); out != "secret\n" {
		t.Errorf("stdout = %q", out)
	}
	// The token opens this stream, whole, and no other.
	token := made.StdoutStreamURL[strings.Index(made.StdoutStreamURL, "?"):]
	for _, url := range []string{
		"/v1/streams/" + made.ExecutionID + "/stderr" + token,
		"/v1/streams/" + made.ExecutionID + "/stdout" + token[:len(token)-2],
		"/v1/streams/" + made.ExecutionID + "/stdout?token=x.y",
		"/v1/streams/" + made.ExecutionID + "/stdout",
		"/v1/info" + token,
	} {
		wantFault(t, stranger.ReadStream(t.Context(), url, io.Discard), fault.Denied, "", "")
	}
	if _, err := stranger.List(t.Context(), api.ListRequest{}); !fault.Is(err, fault.Denied) {
		t.Errorf("list without a key: %v", err)
	}
	if err := stranger.Health(t.Context()); err != nil {
		t.Errorf("health without a key: %v", err)
	}
}
