package netd

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
)

func only(names ...string) func(string) bool {
	return func(n string) bool { return slices.Contains(names, n) }
}

func none() upgrade { return upgradePending }

// feedAll feeds a text in pieces, through the form in which a filter travels.
func feedAll(text string, piece int, allowed func(string) bool) (string, error) {
	f := filter{Kind: filterHTTP}
	var out strings.Builder
	for len(text) > 0 {
		n := min(piece, len(text))
		pass, err := f.feed([]byte(text[:n]), allowed, none)
		out.Write(pass)
		if err != nil {
			return out.String(), err
		}
		text = text[n:]
		b, err := json.Marshal(f)
		if err != nil {
			return "", err
		}
		f = filter{}
		if err := json.Unmarshal(b, &f); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

const get = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"

func TestHTTPThatPasses(t *testing.T) {
	for _, text := range []string{
		get,
		get + get + get,
		"GET http://a.test/x HTTP/1.1\r\nHost: a.test:80\r\nAccept: */*\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: A.TEST.\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 38\r\n\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n123456" + get,
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: Chunked\r\n\r\n5;ext=1\r\nGET /\r\n0A\r\n0123456789\r\n0\r\nX: y\r\n\r\n" + get,
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n" + get,
		"GET / HTTP/1.0\r\nHost: a.test\r\nX:\t tab\t\r\n\r\n",
	} {
		for _, piece := range []int{1, 2, 7, 4096} {
			if got, err := feedAll(text, piece, only("a.test")); got != text || err != nil {
				t.Errorf("in pieces of %d: %q became %q, %v", piece, text, got, err)
			}
		}
	}
}

func TestHTTPThatIsRefused(t *testing.T) {
	host := "Host: a.test\r\n"
	for text, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n":                                                         "another host",
		get + "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n":                                                   "another host",
		"GET http://b.test/ HTTP/1.1\r\n" + host + "\r\n":                                                "another host",
		"GET http://a.test@b.test/ HTTP/1.1\r\n" + host + "\r\n":                                         "target",
		"GET b.test HTTP/1.1\r\n" + host + "\r\n":                                                        "target",
		"CONNECT a.test:443 HTTP/1.1\r\n" + host + "\r\n":                                                "CONNECT",
		"GET / HTTP/1.1\r\n\r\n":                                                                         "does not name",
		"GET / HTTP/1.1\r\n" + host + "Host: b.test\r\n\r\n":                                             "does not name",
		"GET / HTTP/1.1\r\n" + host + host + "\r\n":                                                      "does not name",
		"GET / HTTP/1.1\r\nHost : b.test\r\n" + host + "\r\n":                                            "malformed lines",
		"GET / HTTP/1.1\r\n" + host + " Host: b.test\r\n\r\n":                                            "malformed lines",
		"GET / HTTP/1.1\r\n" + host + "X: a\nHost: b.test\r\n\r\n":                                       "malformed lines",
		"GET / HTTP/1.1\r\n" + host + "X: a\rHost: b.test\r\n\r\n":                                       "malformed lines",
		"GET / HTTP/1.1\r\nHost:\r\n\r\n":                                                                "another host",
		"GET / HTTP/1.1\r\nHost: 1.2.3.4\r\n\r\n":                                                        "another host",
		"GET / HTTP/2.0\r\n" + host + "\r\n":                                                             "not HTTP/1",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                               "not HTTP/1",
		"GET  / HTTP/1.1\r\n" + host + "\r\n":                                                            "not HTTP/1",
		"\x16\x03\x01\x00\x05hello":                                                                      "not HTTP",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 5\r\n\r\n":                  "two lengths",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n":         "two lengths",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: +5\r\n\r\n":                                      "malformed length",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 5, 5\r\n\r\n":                                    "malformed length",
		"POST / HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n":                                         "malformed length",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n":                        "unknown encoding",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: \x0bchunked\r\n\r\n":                          "malformed lines",
		"POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n":                              "unknown encoding",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nx\r\n":                         "malformed chunk",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n-1\r\n":                        "malformed chunk",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n":                   "too long",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1\na\n":                        "malformed lines",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("0", 10000): "too long",
		get + "GET / HTTP/1.1\r\n" + host + "Upgrade: websocket\r\n\r\n":                                 "first request",
		"GET / HTTP/1.1\r\n" + host + "Upgrade: websocket\r\n\r\nx":                                      "before the server agreed",
		"GET / HTTP/1.1\r\n" + host + "Upgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\n":                       "not HTTP/1",
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", maxHead+10):                                        "too large",
	} {
		for _, piece := range []int{1 + len(text)/1000, 4096} {
			got, err := feedAll(text, piece, only("a.test"))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("in pieces of %d: %.90q: %v, want %q", piece, text, err, want)
			}
			if strings.Contains(got, "b.test") {
				t.Errorf("%.90q: %q has passed", text, got)
			}
		}
	}
}

// A server in Go understands what passed as requests for hosts that are
// allowed, and nothing else.
func FuzzHTTP(f *testing.F) {
	f.Add(get+get, 3)
	f.Add("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n12345"+get, 11)
	f.Add("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n"+get, 4096)
	f.Add("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n", 4096)
	f.Fuzz(func(t *testing.T, text string, piece int) {
		if len(text) > 1<<16 {
			return
		}
		got, _ := feedAll(text, max(1, min(piece, 1<<16)), only("a.test"))
		if !strings.HasPrefix(text, got) {
			t.Fatalf("%q became %q", text, got)
		}
		in := bufio.NewReader(strings.NewReader(got))
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if name := strings.ToLower(strings.TrimSuffix(hostOf(r.Host), ".")); name != "a.test" {
				t.Fatalf("%q holds a request for %q", got, r.Host)
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
		}
	})
}

func TestStatusWatch(t *testing.T) {
	dump, _ := httputil.DumpResponse(&http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1}, false)
	for text, want := range map[string]upgrade{
		string(dump): upgradeAccepted, "HTTP/1.1 200 OK\r\n": upgradeDeclined, "HTTP/1.1 10": upgradePending, "garbage garbage": upgradeDeclined, "": upgradePending,
	} {
		for _, piece := range []int{1, 100} {
			w, got := statusWatch{}, upgradePending
			for rest := text; len(rest) > 0 && got == upgradePending; {
				n := min(piece, len(rest))
				got = w.feed([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got != want {
				t.Errorf("%q in pieces of %d: %v, want %v", text, piece, got, want)
			}
		}
	}
}
