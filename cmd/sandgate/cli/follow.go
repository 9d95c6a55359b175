package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

// following is a command under way in a sandbox, and where its streams go.
type following struct {
	client    *api.Client
	execution string
	stdin     string // stream URLs
	stdout    string
	stderr    string

	in       io.Reader // nil: none
	out, err io.Writer // nil: the stream is left alone
}

// cancelTime bounds how long a command may take to end once it was cancelled.
const cancelTime = 20 * time.Second

// wait moves the streams until the command has ended and all its output has
// come. When ctx ends the command is cancelled; what it prints as it ends
// still comes. The error is exitCodeError for an end that is not the
// command's own.
func (f *following) wait(ctx context.Context) (api.Execution, error) {
	live, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	var streams sync.WaitGroup
	broken := make(chan error, 2)
	for _, s := range []struct {
		url string
		to  io.Writer
	}{{f.stdout, f.out}, {f.stderr, f.err}} {
		if s.to != nil && s.url != "" {
			streams.Go(func() {
				if err := f.client.ReadStream(live, s.url, s.to); err != nil {
					broken <- err
				}
			})
		}
	}
	if f.in != nil && f.stdin != "" {
		// Not waited for: the command may end before its input does. What
		// goes wrong here the command sees, or has not asked for.
		go func() { _ = f.client.WriteStream(live, f.stdin, f.in) }()
	}
	type end struct {
		x   api.Execution
		err error
	}
	ended := make(chan end, 1)
	go func() {
		x, err := f.client.WaitExecution(live, f.execution)
		streams.Wait()
		ended <- end{x, err}
	}()

	select {
	case e := <-ended:
		return e.x, firstError(e.err, broken)
	case err := <-broken:
		_ = f.cancel(ctx)
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
			return api.Execution{}, exitCodeError{code: exitPipe}
		}
		return api.Execution{}, err
	case <-ctx.Done():
	}
	if err := f.cancel(ctx); err != nil {
		return api.Execution{}, err
	}
	select {
	case <-ended:
	case <-time.After(cancelTime):
	}
	return api.Execution{}, exitCodeError{exitInterrupted, ctx.Err()}
}

func (f *following) cancel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	return f.client.Cancel(ctx, f.execution)
}

func firstError(err error, more <-chan error) error {
	if err != nil {
		return err
	}
	select {
	case err = <-more:
	default:
	}
	return err
}

// runResult is what `run` and `exec` print with --json.
type runResult struct {
	SandboxID       string `json:"sandboxId"`
	ExecutionID     string `json:"executionId"`
	Status          string `json:"status"`
	ExitCode        *int   `json:"exitCode,omitempty"`
	DurationMs      *int64 `json:"durationMs,omitempty"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	OutputTruncated bool   `json:"outputTruncated,omitempty"`
	Error           string `json:"error,omitempty"`
}

// capture keeps the first bytes of a stream and swallows the rest.
type capture struct {
	bytes.Buffer
	cut bool
}

const captureSize = 16 << 20

func (c *capture) Write(b []byte) (int, error) {
	keep := min(len(b), captureSize-c.Len())
	c.cut = c.cut || keep < len(b)
	c.Buffer.Write(b[:keep])
	return len(b), nil
}

// show follows a command as the flags of run and exec ask for, and returns
// how this program ends: as the command did.
func (a *app) show(ctx context.Context, f following, quiet, asJSON bool) error {
	var stdout, stderr capture
	switch {
	case asJSON:
		f.out, f.err = &stdout, &stderr
	case !quiet:
		f.out, f.err = a.Stdout, a.Stderr
	}
	if a.Local {
		// A reader that has gone away must not kill this process before it
		// has cancelled the command.
		pipe := make(chan os.Signal, 1)
		signal.Notify(pipe, syscall.SIGPIPE)
		defer signal.Stop(pipe)
	}
	x, err := f.wait(ctx)
	if err != nil {
		return own(err)
	}
	if asJSON {
		err := a.printJSON(runResult{
			SandboxID: x.SandboxID, ExecutionID: x.ExecutionID, Status: x.Status, ExitCode: x.ExitCode, DurationMs: x.DurationMs,
			Stdout: stdout.String(), Stderr: stderr.String(), OutputTruncated: stdout.cut || stderr.cut, Error: x.Error,
		})
		if err != nil {
			return own(err)
		}
	}
	return ending(x)
}

// ending turns the end of a command into the end of this program.
func ending(x api.Execution) error {
	message := func(code int, fallback string) error {
		text := x.Error
		if text == "" {
			text = fallback
		}
		return exitCodeError{code, errors.New("the command " + text)}
	}
	switch {
	case sandbox.ExecutionStatus(x.Status) == sandbox.ExecTimeout:
		return message(exitTimeout, "timed out")
	case sandbox.ExecutionStatus(x.Status) == sandbox.ExecCancelled && x.ExitCode == nil:
		return message(exitInterrupted, "was cancelled")
	case x.ExitCode == nil:
		return exitCodeError{exitOwn, errors.New("the command did not run to its end: " + x.Error)}
	case *x.ExitCode != 0:
		return exitCodeError{code: *x.ExitCode}
	}
	return nil
}
