package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/sandgate/sandgate/keys"
)

// InProcess is a transport that calls h directly, on behalf of who: the client
// of commands that run inside the server (`ssh gateway list`). Bodies stream
// both ways. The handler of a request ends when its body has been read to the
// end or closed, or the context of the request ends.
func InProcess(h http.Handler, who keys.Principal) http.RoundTripper {
	return &inProcess{h, who}
}

type inProcess struct {
	handler http.Handler
	who     keys.Principal
}

// RoundTrip implements http.RoundTripper.
func (t *inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(WithPrincipal(req.Context(), t.who))
	r := req.Clone(ctx)
	r.Host, r.RequestURI, r.RemoteAddr = req.URL.Host, req.URL.RequestURI(), "in-process"
	if r.Body == nil {
		r.Body = http.NoBody
	}
	// A handler may wait for more of a body that nobody reads any more.
	context.AfterFunc(ctx, func() { _ = r.Body.Close() })
	reader, writer := io.Pipe()
	w := &pipeAnswer{header: http.Header{}, body: writer, begun: make(chan struct{})}
	go func() { // ends with the handler; see above for when that is
		defer cancel()
		defer func() {
			switch p := recover(); {
			case p == nil:
				w.WriteHeader(http.StatusOK)
				_ = writer.Close()
			default:
				if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					w.fail(fmt.Errorf("panic in the handler: %v", p))
				}
				w.fail(io.ErrUnexpectedEOF)
			}
		}()
		t.handler.ServeHTTP(w, r)
	}()
	select {
	case <-w.begun:
	case <-req.Context().Done():
		cancel()
		_ = reader.Close()
		return nil, req.Context().Err()
	}
	if w.err != nil {
		return nil, w.err
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, ContentLength: -1, Request: req,
		Body: &pipeBody{PipeReader: reader, cancel: cancel},
	}, nil
}

// pipeAnswer is the ResponseWriter of one request. It belongs to the handler's
// goroutine; closing begun hands status, sent and err over.
type pipeAnswer struct {
	header http.Header
	body   *io.PipeWriter
	begun  chan struct{}
	once   sync.Once

	status int
	sent   http.Header
	err    error
}

func (w *pipeAnswer) Header() http.Header { return w.header }

func (w *pipeAnswer) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *pipeAnswer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush implements http.Flusher; what is written is never held back, the
// header is.
func (w *pipeAnswer) Flush() { w.WriteHeader(http.StatusOK) }

// fail ends the answer with an error, wherever it is.
func (w *pipeAnswer) fail(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.begun)
	})
	_ = w.body.CloseWithError(err)
}

// pipeBody ends the handler when it is closed.
type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *pipeBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
