package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// readStream sends stdout or stderr from its beginning until the execution
// ends. The bytes are the command's own; nothing is added. An answer that is
// cut off, rather than ended, means that output is missing.
func (s *server) readStream(w http.ResponseWriter, r *http.Request) {
	stream := sandbox.Stream(r.PathValue("stream"))
	if stream != sandbox.Stdout && stream != sandbox.Stderr {
		s.fail(w, r, fault.New(fault.NotFound, "there is no such stream; there are stdout and stderr"))
		return
	}
	ops := s.operations(r)
	if _, err := ops.Execution(r.Context(), r.PathValue("id"), 0); err != nil {
		s.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	// Raw bytes of a sandbox must never run as a page of this origin.
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	w.WriteHeader(http.StatusOK)
	out := flusher{w, http.NewResponseController(w)}
	_ = out.flush.Flush()
	if err := ops.Output(r.Context(), r.PathValue("id"), stream, out); err != nil {
		if a, ok := w.(*answer); ok {
			a.err = err
		}
		panic(http.ErrAbortHandler)
	}
}

// flusher sends on what is written to it at once.
type flusher struct {
	w     io.Writer
	flush *http.ResponseController
}

func (f flusher) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	if err == nil {
		err = f.flush.Flush()
	}
	return n, err
}

// stdinGrace is how long a body may take to end after the command has ended.
const stdinGrace = 250 * time.Millisecond

// writeStdin feeds the body to the command, and closes its stdin when the body
// ends.
func (s *server) writeStdin(w http.ResponseWriter, r *http.Request) {
	// The body stays open while answers of other requests come; without this
	// HTTP/1 would read all of it before it sends an early answer.
	_ = http.NewResponseController(w).EnableFullDuplex()
	body := &bodyReader{r: r.Body}
	err := s.operations(r).WriteStdin(r.Context(), r.PathValue("id"), body)
	if err != nil && r.Context().Err() != nil {
		err = fault.From(context.Cause(r.Context()))
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	// The command may have ended before the body did: what is left of it is
	// not waited for.
	if !body.ended {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stdinGrace))
	}
	writeEnvelope(w, http.StatusOK, envelope{Success: true})
}

// bodyReader notes whether the body was read to its end.
type bodyReader struct {
	r     io.Reader
	ended bool
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		b.ended = true
	}
	return n, err
}
