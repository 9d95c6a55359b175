package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// frame is output as an engine sends it.
func frame(kind byte, payload string) []byte {
	h := make([]byte, frameHeader, frameHeader+len(payload))
	h[0] = kind
	binary.BigEndian.PutUint32(h[4:], uint32(len(payload)))
	return append(h, payload...)
}

// over returns a stream that reads the bytes.
func over(tb testing.TB, r io.Reader) *stream {
	tb.Helper()
	a, b := net.Pipe()
	tb.Cleanup(func() { a.Close(); b.Close() })
	return &stream{conn: a, leave: func() {}, started: func() {}, frames: bufio.NewReaderSize(r, 16)}
}

func TestStreamDemux(t *testing.T) {
	in := bytes.Join([][]byte{
		frame(1, "hello "), frame(2, strings.Repeat("noise", 1000)), frame(1, ""), frame(0, "stdin echo"), frame(1, "world\x00\xff"),
	}, nil)
	for name, r := range map[string]io.Reader{
		"at once":     bytes.NewReader(in),
		"by the byte": iotest.OneByteReader(bytes.NewReader(in)),
		"by halves":   iotest.HalfReader(bytes.NewReader(in)),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := io.ReadAll(over(t, r))
			if err != nil || string(got) != "hello world\x00\xff" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestStreamErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		in   []byte
		want string
	}{
		"cut header":   {frame(1, "x")[:5], "unexpected EOF"},
		"cut payload":  {frame(1, "hello")[:10], "unexpected EOF"},
		"cut noise":    {frame(2, "hello")[:10], "unexpected EOF"},
		"unknown kind": {frame(4, "x"), "a frame that begins with"},
		"no frames":    {[]byte("HTTP/1.1 200 OK\r\n"), "a frame that begins with"},
		"relay failed": {frame(2, "exec failed:\r\n no such file\x1b[2J\n"), "the relay could not run: exec failed: no such file [2J"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := io.ReadAll(over(t, bytes.NewReader(tt.in)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestStreamEndUnblocksWrite holds that a writer does not wait for an engine
// that has ended the other direction.
func TestStreamEndUnblocksWrite(t *testing.T) {
	s := over(t, strings.NewReader(""))
	wrote := make(chan error, 1)
	go func() {
		_, err := s.Write([]byte("nobody reads this"))
		wrote <- err
	}()
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := <-wrote; err == nil {
		t.Error("Write succeeded")
	}
}

func FuzzStream(f *testing.F) {
	f.Add(frame(1, "hello"))
	f.Add(append(frame(2, "noise"), frame(1, "hello")...))
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := over(t, bytes.NewReader(in))
		out, err := io.ReadAll(s)
		if len(out) > len(in) {
			t.Errorf("%d bytes came out of %d", len(out), len(in))
		}
		if len(s.noise) > maxNoise {
			t.Errorf("%d bytes of noise are kept", len(s.noise))
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%q is not one line", err)
		}
	})
}
