package netd

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/sandgate/sandgate/sandbox/egress"
)

// Bounds of what is kept of a request until it can be judged.
const (
	maxHead  = 32 << 10
	maxChunk = 4 << 10 // a line before a chunk
)

// upgrade is what became of the wish to speak another protocol.
type upgrade int32

const (
	upgradeNone     upgrade = iota
	upgradePending          // asked for, not answered
	upgradeAccepted         // the server said 101
	upgradeDeclined         // it said something else
)

// httpState is where in a stream of requests a filter is. Between requests all
// is zero, but for Requests.
//
// The parser is strict: what servers may understand in two ways is refused, so
// that no request hides in the body of another one.
type httpState struct {
	Requests int      `json:"requests,omitempty"`
	At       httpPart `json:"at,omitempty"`
	Left     uint64   `json:"left,omitempty"` // bytes of the body or of a chunk
	Seen     int      `json:"seen,omitempty"` // how much of a head was searched for its end
	Upgrade  bool     `json:"upgrade,omitempty"`
}

type httpPart string

const (
	atHead     httpPart = ""
	atBody     httpPart = "body"
	atSize     httpPart = "size"    // the line before a chunk
	atChunk    httpPart = "chunk"   // in a chunk
	atEnd      httpPart = "end"     // the line end after a chunk
	atTrailers httpPart = "trailer" // after the last chunk
)

func (f *filter) feedHTTP(p []byte, allowed func(string) bool, accepted func() upgrade) ([]byte, error) {
	f.Buf = append(f.Buf, p...)
	var out []byte
	for len(f.Buf) > 0 {
		if f.HTTP.Upgrade {
			switch accepted() {
			case upgradeAccepted:
				return append(out, f.release()...), nil
			case upgradeDeclined:
				f.HTTP.Upgrade = false
			default:
				return nil, &refused{reason: "data before the server agreed to another protocol"}
			}
		}
		n, err := f.step(allowed)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break // more is needed
		}
		out = append(out, f.Buf[:n]...)
		f.Buf = f.Buf[n:]
	}
	if len(f.Buf) == 0 {
		f.Buf = nil
	}
	return out, nil
}

// step judges the next part and returns how many bytes of it may pass.
func (f *filter) step(allowed func(string) bool) (int, error) {
	h := &f.HTTP
	switch h.At {
	case atHead:
		return f.head(allowed)
	case atBody, atChunk:
		n := min(uint64(len(f.Buf)), h.Left)
		if h.Left -= n; h.Left == 0 {
			if h.At == atBody {
				h.At = atHead
			} else {
				h.At = atEnd
			}
		}
		return int(n), nil
	case atEnd:
		line, n, err := f.line(0)
		if err != nil || n == 0 {
			return 0, err
		}
		if len(line) > 0 {
			return 0, &refused{reason: "the request has a malformed chunk"}
		}
		h.At = atSize
		return n, nil
	case atSize:
		line, n, err := f.line(maxChunk)
		if err != nil || n == 0 {
			return 0, err
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		left, err := strconv.ParseUint(string(bytes.TrimRight(size, " \t")), 16, 62)
		if err != nil || len(size) == 0 || size[0] == '+' {
			return 0, &refused{reason: "the request has a malformed chunk"}
		}
		if h.Left, h.At = left, atChunk; left == 0 {
			h.At = atTrailers
		}
		return n, nil
	default: // atTrailers
		line, n, err := f.line(maxChunk)
		if err != nil || n == 0 {
			return 0, err
		}
		if len(line) == 0 {
			h.At = atHead
		}
		return n, nil
	}
}

// line returns the next line without its end, and its length with it; 0 when it
// is not complete.
func (f *filter) line(limit int) ([]byte, int, error) {
	i := bytes.IndexByte(f.Buf, '\n')
	if i > limit+1 || i < 0 && len(f.Buf) > limit+1 {
		return nil, 0, &refused{reason: "the request has a line that is too long"}
	}
	if i < 0 {
		return nil, 0, nil
	}
	line, ok := bytes.CutSuffix(f.Buf[:i], []byte("\r"))
	if !ok || bytes.IndexByte(line, '\r') >= 0 {
		return nil, 0, &refused{reason: "the request has malformed lines"}
	}
	return line, i + 1, nil
}

// head judges the head of a request, when it is complete.
func (f *filter) head(allowed func(string) bool) (int, error) {
	from := max(0, f.HTTP.Seen-3)
	end := bytes.Index(f.Buf[from:], []byte("\r\n\r\n"))
	if end < 0 {
		f.HTTP.Seen = len(f.Buf)
		if len(f.Buf) > maxHead {
			return 0, &refused{reason: "the head of the request is too large"}
		}
		if c := f.Buf[0]; c < 'A' || c > 'z' { // anything but a method
			return 0, &refused{reason: "what was sent to port 80 is not HTTP"}
		}
		return 0, nil
	}
	end += from
	f.HTTP.Seen = 0
	r, err := parseHead(string(f.Buf[:end]))
	if err != nil {
		return 0, err
	}
	for _, host := range r.hosts {
		name, ok := egress.CanonicalName(hostOf(host))
		if !ok || !allowed(name) {
			return 0, &refused{reason: "the request is for another host", name: printable(host)}
		}
	}
	f.Passed = true
	h := &f.HTTP
	h.Requests++
	if r.upgrade {
		if h.Requests > 1 {
			return 0, &refused{reason: "only the first request can change the protocol"}
		}
		h.Upgrade = true
	}
	switch {
	case r.chunked:
		h.At = atSize
	case r.length > 0:
		h.At, h.Left = atBody, r.length
	}
	return end + 4, nil
}

// request is what has to be known of a request.
type request struct {
	hosts   []string // of the Host header, and of the target
	length  uint64
	chunked bool
	upgrade bool
}

func parseHead(head string) (request, error) {
	bad := func(reason string) (request, error) { return request{}, &refused{reason: reason} }
	line, rest, _ := strings.Cut(head, "\r\n")
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !token(parts[0]) || parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" || !plain(line) {
		return bad("what was sent to port 80 is not HTTP/1")
	}
	var r request
	switch target := parts[1]; {
	case parts[0] == "CONNECT":
		return bad("CONNECT is not possible")
	case strings.HasPrefix(target, "/"), target == "*":
	default:
		scheme, after, ok := strings.Cut(target, "://")
		if !ok || !strings.EqualFold(scheme, "http") {
			return bad("the request has a malformed target")
		}
		authority, _, _ := strings.Cut(after, "/")
		authority, _, _ = strings.Cut(authority, "?")
		if strings.ContainsAny(authority, "@#") {
			return bad("the request has a malformed target")
		}
		r.hosts = append(r.hosts, authority)
	}
	seen := map[string]int{}
	for rest != "" {
		line, rest, _ = strings.Cut(rest, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		if !ok || !token(name) || !plain(value) {
			return bad("the request has malformed lines")
		}
		name, value = strings.ToLower(name), strings.Trim(value, " \t")
		seen[name]++
		switch name {
		case "host":
			r.hosts = append(r.hosts, value)
		case "content-length":
			n, err := strconv.ParseUint(value, 10, 62)
			if err != nil || value[0] == '+' {
				return bad("the request has a malformed length")
			}
			r.length = n
		case "transfer-encoding":
			if !strings.EqualFold(value, "chunked") || parts[2] == "HTTP/1.0" {
				return bad("the request has an unknown encoding")
			}
			r.chunked = true
		case "upgrade":
			// What other protocols send is judged as the HTTP it is not.
			r.upgrade = strings.EqualFold(value, "websocket")
		}
	}
	switch {
	case seen["host"] != 1:
		return bad("the request does not name its host")
	case seen["content-length"] > 1, seen["transfer-encoding"] > 1, r.chunked && seen["content-length"] > 0:
		return bad("the request has two lengths")
	}
	return r, nil
}

// hostOf takes the port off a host.
func hostOf(host string) string {
	name, _, _ := strings.Cut(host, ":")
	return name
}

// token reports whether s is a word as methods and names of headers are.
func token(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// plain reports whether s is free of control characters, but for tabs.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// statusWatch reads the status of the first response as it passes by.
type statusWatch struct {
	Seen []byte `json:"seen,omitempty"`
}

// accepted101 is the beginning of a response that changes the protocol.
const accepted101 = "HTTP/1.1 101"

// feed returns upgradePending until the status is known.
func (w *statusWatch) feed(p []byte) upgrade {
	w.Seen = append(w.Seen, p[:min(len(p), len(accepted101)-len(w.Seen))]...)
	if len(w.Seen) < len(accepted101) {
		return upgradePending
	}
	if string(w.Seen) == accepted101 {
		return upgradeAccepted
	}
	return upgradeDeclined
}
