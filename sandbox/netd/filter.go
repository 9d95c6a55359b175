package netd

import (
	"errors"

	"github.com/sandgate/sandgate/sandbox/egress"
)

// filter looks at what a sandbox sends on one connection and says for whom it
// really is. It can be handed to another process in the middle of anything, so
// it is plain data.
type filter struct {
	Kind filterKind `json:"kind"`
	// Buf is what has arrived and cannot be judged yet.
	Buf []byte `json:"buf,omitempty"`
	// HTTP is where a filter for HTTP is.
	HTTP httpState `json:"http,omitzero"`
	// Passed is set when the first name was allowed.
	Passed bool `json:"passed,omitempty"`
}

type filterKind string

const (
	// filterNone lets everything pass.
	filterNone filterKind = ""
	// filterTLS wants a ClientHello with a server name that is allowed.
	filterTLS filterKind = "tls"
	// filterMaybeTLS checks a server name where there is one. Other protocols
	// pass, those in which the server speaks first among them.
	filterMaybeTLS filterKind = "maybe-tls"
	// filterHTTP wants requests, each for a host that is allowed.
	filterHTTP filterKind = "http"
)

// filterFor chooses by port. Without rules there is nothing to check.
func filterFor(p *egress.Policy, port uint16) filter {
	switch {
	case p == nil:
		return filter{}
	case port == 443:
		return filter{Kind: filterTLS}
	case port == 80:
		return filter{Kind: filterHTTP}
	}
	return filter{Kind: filterMaybeTLS}
}

// strict reports whether nothing passes before a name was allowed.
func (f *filter) strict() bool { return f.Kind == filterTLS || f.Kind == filterHTTP }

// refused is why a filter ends a connection.
type refused struct {
	reason string
	name   string // it was meant for; empty when that is not known
}

func (r *refused) Error() string { return r.reason }

// feed takes what the sandbox sends and returns what may go on. allowed is
// asked for every name. accepted tells whether the server has agreed to the
// upgrade that the first request asked for.
func (f *filter) feed(p []byte, allowed func(name string) bool, accepted func() upgrade) ([]byte, error) {
	switch f.Kind {
	case filterTLS, filterMaybeTLS:
		return f.feedTLS(p, allowed)
	case filterHTTP:
		return f.feedHTTP(p, allowed, accepted)
	}
	return p, nil
}

func (f *filter) feedTLS(p []byte, allowed func(string) bool) ([]byte, error) {
	f.Buf = append(f.Buf, p...)
	said, more, err := helloName(f.Buf)
	if more && len(f.Buf) <= maxHello+1<<10 {
		return nil, nil
	}
	if err == nil && more {
		err = errNotTLS
	}
	if f.Kind == filterMaybeTLS && (err != nil || said == "") {
		return f.release(), nil
	}
	if err != nil {
		return nil, &refused{reason: "what was sent to port 443 is not TLS"}
	}
	if said == "" {
		return nil, &refused{reason: "the TLS hello names no server"}
	}
	name, ok := egress.CanonicalName(said)
	if !ok || !allowed(name) {
		return nil, &refused{reason: "the TLS hello is for another server", name: printable(said)}
	}
	return f.release(), nil
}

// release ends the filtering.
func (f *filter) release() []byte {
	out := f.Buf
	*f = filter{Passed: true}
	return out
}

// printable makes a name that a sandbox has chosen safe to show.
func printable(s string) string {
	b := []byte(s[:min(len(s), 255)])
	for i, c := range b {
		if c <= ' ' || c >= 0x7f {
			b[i] = '?'
		}
	}
	return string(b)
}

// reasonOf takes the reason out of an error of a filter.
func reasonOf(err error) (reason, name string, ok bool) {
	if r, is := errors.AsType[*refused](err); is {
		return r.reason, r.name, true
	}
	return "", "", false
}
