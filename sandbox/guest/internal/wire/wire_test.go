package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

func TestMessages(t *testing.T) {
	var b bytes.Buffer
	want := Attach{ID: "x", From: -1}
	if err := WriteMessage(&b, want, MaxRequest); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	var got Attach
	if err := ReadMessage(iotest.OneByteReader(bytes.NewReader(whole)), &got, MaxRequest); err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	for n := range whole {
		err := ReadMessage(bytes.NewReader(whole[:n]), &got, MaxRequest)
		if err == nil || errors.Is(err, ErrProtocol) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if err := WriteMessage(io.Discard, strings.Repeat("x", 100), 101); err == nil {
		t.Error("sent a message over the limit")
	}
	for name, msg := range map[string]string{
		"long":       "\xff\xff\xff\xffx",
		"over":       "\x00\x10\x00\x01{}",
		"no JSON":    "\x00\x00\x00\x01x",
		"empty":      "\x00\x00\x00\x00",
		"other type": "\x00\x00\x00\x0a{\"id\":123}",
		"range":      "\x00\x00\x00\x0f{\"from\":1e9999}",
		"deep":       "\x00\x00\x75\x30" + strings.Repeat("[", 30000),
	} {
		if err := ReadMessage(strings.NewReader(msg), &got, MaxRequest); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	w := NewFrameWriter(&b)
	data := strings.Repeat("0123456789", MaxPayload/8) // more than one frame
	if n, err := w.Data(KindData, []byte(data)); n != len(data) || err != nil {
		t.Fatal(n, err)
	}
	if err := w.Copy(KindStdout, strings.NewReader("copied")); err != nil {
		t.Fatal(err)
	}
	if err := w.Fact(KindEOF, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.JSON(KindExit, Exit{Code: 3}); err != nil {
		t.Fatal(err)
	}
	b.Write(AppendGap(nil, 1<<40))

	r := NewFrameReader(iotest.HalfReader(&b))
	var got strings.Builder
	for got.Len() < len(data) {
		if kind, _, err := r.Next(); kind != KindData || err != nil {
			t.Fatal(kind, err)
		}
		if _, err := io.Copy(&got, r); err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != data {
		t.Error("the data differs")
	}
	if kind, n, err := r.Next(); kind != KindStdout || n != 6 || err != nil {
		t.Fatal(kind, n, err)
	}
	if p, err := r.Payload(); string(p) != "copied" || err != nil {
		t.Fatal(string(p), err)
	}
	if kind, n, err := r.Next(); kind != KindEOF || n != 0 || err != nil {
		t.Fatal(kind, n, err)
	}
	var exit Exit
	if kind, _, err := r.Next(); kind != KindExit || err != nil || r.JSON(&exit) != nil || exit.Code != 3 {
		t.Fatal(kind, err, exit)
	}
	if kind, _, err := r.Next(); kind != KindGap || err != nil {
		t.Fatal(kind, err)
	}
	if off, err := r.Offset(); off != 1<<40 || err != nil {
		t.Fatal(off, err)
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestBadFrames(t *testing.T) {
	for name, b := range map[string]string{
		"unknown":        "\x07\x00\x00\x00\x00",
		"zero":           "\x00\x00\x00\x00\x00",
		"long data":      "\x01\x00\x04\x00\x01",
		"huge data":      "\x01\xff\xff\xff\xff",
		"long fact":      "\x13\x00\x00\x10\x01",
		"eof with bytes": "\x10\x00\x00\x00\x01x",
	} {
		if _, _, err := NewFrameReader(strings.NewReader(b)).Next(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string]string{
		"short gap":    "\x12\x00\x00\x00\x04abcd",
		"negative gap": "\x12\x00\x00\x00\x08\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		r := NewFrameReader(strings.NewReader(b))
		if _, _, err := r.Next(); err != nil {
			t.Fatal(name, err)
		}
		if _, err := r.Offset(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := NewFrameReader(strings.NewReader("\x01\x00\x00\x00\x05abc"))
	r.Next()
	if _, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut payload: %v", err)
	}
	if _, _, err := r.Next(); !errors.Is(err, ErrProtocol) {
		t.Errorf("next after a cut payload: %v", err)
	}
}

func TestHandshake(t *testing.T) {
	for _, tc := range []struct {
		line string
		want Offer
		ok   bool
	}{
		{"sandgate-guest 1 1 1048576\n", Offer{1, 1, 1 << 20}, true},
		{"sandgate-guest 1 7 262144\n", Offer{1, 7, 256 << 10}, true},
		{"sandgate-guest 2 1 1048576\n", Offer{}, false},
		{"sandgate-guest 0 1 1048576\n", Offer{}, false},
		{"sandgate-guest 1 1 1\n", Offer{}, false},
		{"sandgate-guest 1 1 99999999999\n", Offer{}, false},
		{"sandgate-guest 1 1 -5\n", Offer{}, false},
		{"sandgate-guest 1 1\n", Offer{}, false},
		{"sandgate-guest 1 1 1048576 x\n", Offer{}, false},
		{"sandgate-guest 1 1 1048576\nmore", Offer{}, false},
		{"SSH-2.0-OpenSSH_10.0\n", Offer{}, false},
		{"\n", Offer{}, false},
		{"", Offer{}, false},
		{strings.Repeat("x", MaxLine+1), Offer{}, false},
	} {
		got, err := ReadOffer(strings.NewReader(tc.line))
		if got != tc.want || (err == nil) != tc.ok {
			t.Errorf("%q: %+v %v", tc.line, got, err)
		}
	}
	for _, tc := range []struct {
		o       Offer
		version int
		ok      bool
	}{
		{Offer{1, 1, Window}, 1, true},
		{Offer{1, 9, Window}, NewestVersion, true},
		{Offer{NewestVersion + 1, 9, Window}, NewestVersion, false},
	} {
		if v, _, ok := tc.o.Choose(); v != tc.version || ok != tc.ok {
			t.Errorf("%+v: %d %v", tc.o, v, ok)
		}
	}
	offer := Offer{1, 2, Window}
	for line, ok := range map[string]bool{
		`{"protocol":1,"version":"v1","bootId":"a","window":1048576}`:    true,
		`{"protocol":3,"error":"too old"}`:                               true,
		`{"protocol":3,"version":"v1","bootId":"a","window":1048576}`:    false,
		`{"protocol":-1,"version":"v1","bootId":"a","window":1048576}`:   false,
		`{"protocol":1,"version":"v1","bootId":"a","window":1048577}`:    false,
		`{"protocol":1,"version":"v1","bootId":"a","window":1}`:          false,
		`{"protocol":1,"version":"a b","bootId":"a","window":1048576}`:   false,
		`{"protocol":1,"version":"v1","bootId":"","window":1048576}`:     false,
		`{"protocol":1,"version":"\u001b","bootId":"a","window":262144}`: false,
		`[]`: false,
		``:   false,
	} {
		if _, err := ReadAnswer(strings.NewReader(line+"\n"), offer); (err == nil) != ok {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// The gate lets through what a guest may send, in pieces of any size, and
// nothing else.
func TestGate(t *testing.T) {
	data := func(n int, body string) string {
		return string([]byte{0, 0, 0, 0, 0, 0, 0, 1, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + body
	}
	good := data(5, "hello") + "\x00\x01\x00\x02\x00\x00\x00\x01\x00\x10\x00\x00" + data(12, "\x00\x02\x00\x01........") + "\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	for name, tc := range map[string]struct {
		in string
		ok bool
	}{
		"good":         {good, true},
		"ping":         {good + "\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01", false},
		"ping syn":     {"\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01", false},
		"open":         {good + "\x00\x01\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00", false},
		"open by data": {"\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00", false},
		"version":      {"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", false},
		"type":         {"\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", false},
		"length":       {data(Window+1, ""), false},
	} {
		for _, r := range []io.Reader{strings.NewReader(tc.in), iotest.OneByteReader(strings.NewReader(tc.in))} {
			got, err := io.ReadAll(&gate{ReadWriteCloser: rwc{Reader: r}})
			if tc.ok && (err != nil || string(got) != tc.in) {
				t.Errorf("%s: %v", name, err)
			}
			if !tc.ok && !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

type rwc struct {
	io.Reader
	io.Writer
	io.Closer
}

func TestJoiner(t *testing.T) {
	head := []byte{0, muxData, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5}
	big := bytes.Repeat([]byte("x"), 9<<10)
	var writes [][]byte
	w := writes
	j := &joiner{ReadWriteCloser: rwc{Writer: writerFunc(func(b []byte) (int, error) {
		w = append(w, bytes.Clone(b))
		return len(b), nil
	})}}
	for _, b := range [][]byte{head, []byte("hello"), {0, muxWindow, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1}, head, big, {0, muxData, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0}} {
		if n, err := j.Write(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
	}
	want := []int{17, 12, 12, len(big), 12}
	for i, b := range w {
		if i >= len(want) || len(b) != want[i] {
			t.Fatalf("write %d has %d bytes", i, len(b))
		}
	}
	if len(w) != len(want) {
		t.Errorf("%d writes", len(w))
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestSignals(t *testing.T) {
	for name, want := range map[string]int{"TERM": 15, "SIGTERM": 15, "term": 15, "KILL": 9, "HUP": 1, "SYS": 31, "RT34": 34, "RT64": 64,
		"": 0, "SIG": 0, "RT": 0, "RT15": 0, "RT65": 0, "RT034": 0, "RT+34": 0, "9": 0, "NOPE": 0} {
		if got := SignalNumber(name); got != want {
			t.Errorf("%q: %d", name, got)
		}
	}
	for n := 1; n <= maxSignal; n++ {
		if got := SignalNumber(SignalName(n)); got != n {
			t.Errorf("%d is %q is %d", n, SignalName(n), got)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                       "plain",
		"two\nlines\r":                "two lines",
		"\x1b[31mred\x07":             "[31mred",
		"bad\xff\xfeutf8":             "badutf8",
		"ünïcödé":                     "ünïcödé",
		strings.Repeat("x", 30):       strings.Repeat("x", 20),
		strings.Repeat("é", 20):       strings.Repeat("é", 10),
		"a" + strings.Repeat("é", 20): "a" + strings.Repeat("é", 9),
		"\u202eevil":                  "evil",
	} {
		if got := Printable(in, 20); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add("sandgate-guest 1 1 1048576\n", `{"protocol":1,"version":"v1","bootId":"a","window":1048576}`+"\n")
	f.Add("sandgate-guest 1 99 262144\n", `{"protocol":9,"error":"no"}`+"\n")
	f.Fuzz(func(t *testing.T, host, guest string) {
		if o, err := ReadOffer(iotest.HalfReader(strings.NewReader(host))); err == nil {
			var b bytes.Buffer
			if err := WriteOffer(&b, o); err != nil {
				t.Fatal(err)
			}
			if again, err := ReadOffer(&b); err != nil || again != o {
				t.Errorf("%+v became %+v: %v", o, again, err)
			}
			if v, w, ok := o.Choose(); ok && (v < o.Oldest || v > o.Newest || w > o.Window || w < MinWindow) {
				t.Errorf("%+v: chose %d %d", o, v, w)
			}
		}
		offer := Offer{OldestVersion, NewestVersion, Window}
		if a, err := ReadAnswer(strings.NewReader(guest), offer); err == nil && a.Error == "" {
			if a.Protocol < OldestVersion || a.Protocol > NewestVersion || a.Window < MinWindow || a.Window > Window || !Word(a.Version, 128) || !Word(a.BootID, 64) {
				t.Errorf("accepted %+v", a)
			}
		}
	})
}

// FuzzFrames holds the reader to its bounds, whatever comes.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x05hello\x10\x00\x00\x00\x00"))
	f.Add(AppendGap(nil, 7))
	f.Add([]byte("\x13\x00\x00\x00\x0a{\"code\":1}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewFrameReader(bytes.NewReader(b))
		for {
			kind, n, err := r.Next()
			if err != nil {
				return
			}
			if n > kind.limit() {
				t.Fatalf("frame of kind %d with %d bytes", kind, n)
			}
			if _, err := io.Copy(io.Discard, r); err != nil {
				return
			}
		}
	})
}

// FuzzMux throws bytes at the host's multiplexer: it must end, and not panic.
func FuzzMux(f *testing.F) {
	f.Add([]byte("\x00\x01\x00\x02\x00\x00\x00\x01\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x05hello"))
	f.Add([]byte("\x00\x01\x00\x04\x00\x00\x00\x01\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		host, guest := net.Pipe()
		mux, err := Host(host, Window)
		if err != nil {
			t.Fatal(err)
		}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			io.Copy(io.Discard, guest)
		}()
		st, err := mux.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			io.Copy(io.Discard, st)
		}()
		guest.Write(b)
		guest.Close()
		<-mux.CloseChan()
		mux.Close()
		<-read
		<-drained
	})
}
