package api_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// endless is a body that does not end; it tells when somebody reads it.
type endless struct {
	read chan struct{}
}

func (e endless) Read(b []byte) (int, error) {
	select {
	case e.read <- struct{}{}:
	default:
	}
	return len(b), nil
}

// What is refused is refused at once, however much the client still wants to
// send, and whoever goes away leaves nothing behind that goes on.
func TestCutBodies(t *testing.T) {
	h := newHandler(t, newEngine(t))
	for name, c := range doors(t, h) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			body := endless{make(chan struct{}, 1)}
			_, err := c.PutFile(ctx, "sbx_aaaaaaaaaaaa", "f", api.PutOptions{}, body)
			wantFault(t, err, fault.NotFound, "sandbox", "")
			_, err = c.Upload(ctx, "sbx_aaaaaaaaaaaa", "", "tar", body)
			wantFault(t, err, fault.NotFound, "sandbox", "")

			made := create(t, c, api.CreateRequest{})
			defer func() { _ = c.Delete(context.WithoutCancel(ctx), made.SandboxID) }()
			_, err = c.Upload(ctx, made.SandboxID, "u", "", body)
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("zeros as an archive: %v", err)
			}

			// A body that breaks is the caller's own error, and half a file is none.
			broken := errors.New("broken")
			_, err = c.PutFile(ctx, made.SandboxID, "half", api.PutOptions{}, io.MultiReader(strings.NewReader("half"), failing{broken}))
			if !errors.Is(err, broken) {
				t.Errorf("a broken body: %v", err)
			}
			gone, leave := context.WithCancel(ctx)
			body = endless{make(chan struct{}, 1)}
			sent := make(chan error, 1)
			go func() {
				_, err := c.PutFile(gone, made.SandboxID, "half", api.PutOptions{}, body)
				sent <- err
			}()
			<-body.read
			leave()
			if err := <-sent; !errors.Is(err, context.Canceled) {
				t.Errorf("after going away: %v", err)
			}
			_, err = c.StatFile(ctx, made.SandboxID, "half")
			wantFault(t, err, fault.NotFound, "file", "")
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestCutAnswers(t *testing.T) {
	h := newHandler(t, newEngine(t))
	for name, c := range doors(t, h) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			made := create(t, c, api.CreateRequest{})
			defer func() { _ = c.Delete(context.WithoutCancel(ctx), made.SandboxID) }()
			if _, err := c.PutFile(ctx, made.SandboxID, "big", api.PutOptions{}, io.LimitReader(zeros{}, 32<<20)); err != nil {
				t.Fatal(err)
			}
			enough := errors.New("enough")
			for what, read := range map[string]func(context.Context, io.Writer) error{
				"file":     func(ctx context.Context, w io.Writer) error { return c.ReadFile(ctx, made.SandboxID, "big", w) },
				"download": func(ctx context.Context, w io.Writer) error { return c.Download(ctx, made.SandboxID, "", "tar", w) },
			} {
				if err := read(ctx, writerError{enough}); !errors.Is(err, enough) {
					t.Errorf("%s: %v", what, err)
				}
				gone, leave := context.WithCancel(ctx)
				err := read(gone, writerFunc(func([]byte) { leave() }))
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s after going away: %v", what, err)
				}
			}
			gone, leave := context.WithCancel(ctx)
			err := c.FollowEvents(gone, made.SandboxID, 0, func(e api.Event) error { leave(); return nil })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("events after going away: %v", err)
			}
			// What fails before its first byte fails in order.
			p, err := c.CreateSnapshot(ctx, made.SandboxID, api.SnapshotRequest{Tag: "-"}, "")
			if err != nil {
				t.Fatal(err)
			}
			wantFault(t, c.ExportSnapshot(ctx, p.SnapshotID, io.Discard), fault.Unsupported, "snapshot", "")
			wantFault(t, c.Download(ctx, made.SandboxID, "none", "", io.Discard), fault.NotFound, "file", "")
			if err := c.DeleteSnapshot(ctx, p.SnapshotID, false); err != nil {
				t.Error(err)
			}
		})
	}
}

type writerError struct{ err error }

func (w writerError) Write([]byte) (int, error) { return 0, w.err }
