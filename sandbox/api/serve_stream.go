package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// readStream sends stdout or stderr of an execution or a job, from its beginning
// until it ends; follow=false ends with what there is, timestamps=true begins
// each line with the time of its first byte, and tail bounds the lines. Nothing
// else is added to the command's own bytes. An answer that is cut off, rather
// than ended, means that output is missing.
func (s *server) readStream(w http.ResponseWriter, r *http.Request) {
	stream := sandbox.Stream(r.PathValue("stream"))
	if stream != sandbox.Stdout && stream != sandbox.Stderr {
		s.fail(w, r, fault.New(fault.NotFound, "there is no such stream; there are stdout and stderr"))
		return
	}
	opts, err := outputOptions(query{r.URL.Query()})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ops, id := s.operations(r), r.PathValue("id")
	read := ops.ExecutionOutput
	if isJob(id) {
		read = ops.JobOutput
		_, err = ops.Job(r.Context(), id, 0)
	} else {
		_, err = ops.Execution(r.Context(), id, 0)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := s.rawAnswer(w, r, "application/octet-stream")
	out.begin()
	out.end(read(r.Context(), id, stream, opts, out))
}

// isJob tells the id of a job from that of an execution.
func isJob(id string) bool { return strings.HasPrefix(id, "job_") }

// outputOptions reads how output is to be read.
func outputOptions(q query) (o sandbox.OutputOptions, err error) {
	follow, given, err := q.boolean("follow")
	if err != nil {
		return o, err
	}
	o.Follow = follow || !given
	if o.Timestamps, _, err = q.boolean("timestamps"); err != nil {
		return o, err
	}
	o.Tail, err = q.number("tail", 0)
	return o, err
}

// raw is an answer that is a stream of bytes, sent on as they are written. It
// begins with the first of them; until then the request can still fail in
// order.
type raw struct {
	ctx     context.Context // of the request: writing ends with it
	w       http.ResponseWriter
	flush   *http.ResponseController
	kind    string // content type
	started bool
}

func (s *server) rawAnswer(w http.ResponseWriter, r *http.Request, kind string) *raw {
	return &raw{ctx: r.Context(), w: w, flush: http.NewResponseController(w), kind: kind}
}

// begin sends the header, if nothing was sent.
func (a *raw) begin() {
	if a.started {
		return
	}
	a.started = true
	h := a.w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "no-store")
	// Raw bytes of a sandbox must never run as a page of this origin.
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	a.w.WriteHeader(http.StatusOK)
	_ = a.flush.Flush()
}

func (a *raw) Write(b []byte) (int, error) {
	if err := a.ctx.Err(); err != nil {
		return 0, err
	}
	a.begin()
	n, err := a.w.Write(b)
	if err == nil {
		err = a.flush.Flush()
	}
	return n, err
}

// end ends an answer that was begun: with an error it is cut off.
func (a *raw) end(err error) {
	if err == nil {
		return
	}
	if w, ok := a.w.(*answer); ok {
		w.err = err
	}
	panic(http.ErrAbortHandler)
}

// stdinGrace is how long a body may take to end after the command has ended.
const stdinGrace = 250 * time.Millisecond

// writeStdin feeds the body to the command, and closes its stdin when the body
// ends.
func (s *server) writeStdin(w http.ResponseWriter, r *http.Request) {
	body := openBody(w, r)
	err := s.operations(r).WriteStdin(r.Context(), r.PathValue("id"), body)
	body.leave()
	if err != nil && r.Context().Err() != nil {
		err = fault.From(context.Cause(r.Context()))
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeEnvelope(w, http.StatusOK, envelope{Success: true})
}

// bodyReader is a body of any length. It notes whether it was read to its end.
type bodyReader struct {
	w     http.ResponseWriter
	r     io.Reader
	alone bool // on its connection, which cannot be used again before its end
	read  atomic.Int64
	ended atomic.Bool
}

// openBody opens the body of a request whose answer may come before the body
// has ended; leave must be called before the answer.
func openBody(w http.ResponseWriter, r *http.Request) *bodyReader {
	// Without this HTTP/1 would read all of it before it sends an early answer.
	_ = http.NewResponseController(w).EnableFullDuplex()
	return &bodyReader{w: w, r: r.Body, alone: r.ProtoMajor == 1}
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.read.Add(int64(n))
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// leave sees to it that what is left of the body is not waited for.
func (b *bodyReader) leave() {
	if !b.ended.Load() && b.alone {
		b.w.Header().Set("Connection", "close")
		_ = http.NewResponseController(b.w).SetReadDeadline(time.Now().Add(stdinGrace))
	}
}
