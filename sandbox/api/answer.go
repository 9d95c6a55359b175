package api

import (
	"net/http"

	"github.com/sandgate/sandgate/keys"
)

// answer is the ResponseWriter of one request; it remembers what the log line
// needs.
type answer struct {
	http.ResponseWriter
	id        string
	who       keys.Principal
	status    int
	bytes     int64
	err       error
	streaming bool // NDJSON lines were begun
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// progress writes a line that tells what takes long. From then on the answer
// is a sequence of JSON lines with status 200, the envelope last.
func (a *answer) progress(line string) {
	if !a.streaming {
		a.streaming = true
		a.Header().Set("Content-Type", contentNDJSON)
		a.Header().Set("Cache-Control", "no-store")
		a.WriteHeader(http.StatusOK)
	}
	a.writeLine(envelope{Progress: line})
}

func (a *answer) writeLine(e envelope) {
	line, err := e.encode()
	if err != nil {
		panic(err)
	}
	_, _ = a.Write(append(line, '\n'))
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// statusProbe swallows an answer but for its status and header.
type statusProbe struct {
	header http.Header
	status int
}

func (p *statusProbe) Header() http.Header         { return p.header }
func (p *statusProbe) WriteHeader(status int)      { p.status = status }
func (p *statusProbe) Write(b []byte) (int, error) { return len(b), nil }
