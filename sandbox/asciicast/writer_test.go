package asciicast

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var header = Header{Width: 100, Height: 30, Timestamp: time.Unix(1504467315, 0).UTC(), Title: "dev <main>", Term: "xterm-256color", Shell: "/bin/bash"}

func TestFileIsAsTheFormatSays(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, header)
	w.Output(248848*time.Microsecond, []byte("\x1b[1;31mHello \x1b[32mWorld!\x1b[0m\n"))
	w.Mark(1500*time.Millisecond, "")
	w.Resize(4050*time.Millisecond, 80, 24)
	w.Input(4050*time.Millisecond, []byte("q"))
	w.Output(6541828*time.Microsecond, []byte("<Bye & \xff>\x7f\u009b\u00a0"))
	if file.Len() != 0 {
		t.Errorf("written before it was flushed: %q", &file)
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	want := `{"version":2,"width":100,"height":30,"timestamp":1504467315,"title":"dev <main>","env":{"SHELL":"/bin/bash","TERM":"xterm-256color"}}
[0.248848, "o", "\u001b[1;31mHello \u001b[32mWorld!\u001b[0m\n"]
[1.500000, "m", ""]
[4.050000, "r", "80x24"]
[4.050000, "i", "q"]
[6.541828, "o", "<Bye & �>\u007f\u009b` + "\u00a0" + `"]
`
	if file.String() != want {
		t.Errorf("got\n%swant\n%s", &file, want)
	}
}

// Whatever the pieces in which bytes come, the text is the same, but for the
// bytes that are no UTF-8.
func TestCharactersAreNotCut(t *testing.T) {
	const said = "aé€😀z\u2028漢字"
	for step := 1; step <= len(said); step++ {
		var file bytes.Buffer
		w := NewWriter(&file, header)
		for p := []byte(said); len(p) > 0; p = p[min(step, len(p)):] {
			w.Output(0, p[:min(step, len(p))])
		}
		if w.Held() != 0 {
			t.Errorf("step %d: %d bytes are held back", step, w.Held())
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		if got := shown(t, file.String()); got != said {
			t.Errorf("step %d: %q", step, got)
		}
	}
}

func TestWhatIsNoTextBecomesAReplacement(t *testing.T) {
	for in, want := range map[string]string{
		"a\xffb":         "a\ufffdb",
		"\xe2\x82":       "\ufffd\ufffd", // a character that never ended
		"\xe2\x82\xe2":   "\ufffd\ufffd\ufffd",
		"\xed\xa0\x80":   "\ufffd\ufffd\ufffd", // half a surrogate
		"\xf0\x9f\x98x":  "\ufffd\ufffd\ufffdx",
		"\x00\x1b\x7f":   "\x00\x1b\x7f",
		"ok \xc3\xa9":    "ok é",
		"\x80\x80\x80\n": "\ufffd\ufffd\ufffd\n",
	} {
		for step := 1; step <= len(in); step++ {
			var file bytes.Buffer
			w := NewWriter(&file, header)
			for p := []byte(in); len(p) > 0; p = p[min(step, len(p)):] {
				w.Output(0, p[:min(step, len(p))])
			}
			if err := w.End(); err != nil {
				t.Fatal(err)
			}
			if got := shown(t, file.String()); got != want {
				t.Errorf("%q in steps of %d: %q, want %q", in, step, got, want)
			}
		}
	}
}

func TestOutputAndInputDoNotMix(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, header)
	w.Output(0, []byte("\xe2\x82"))
	w.Input(0, []byte("\xc3"))
	w.Output(0, []byte("\xac"))
	w.Input(0, []byte("\xa9"))
	w.Output(0, []byte("\xe2"))
	w.Break(0, "12 bytes are missing")
	w.Output(0, []byte("\x82\xac"))
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events(t, file.String()) {
		got = append(got, string(e.Code)+e.Data)
	}
	if want := "o€|ié|o\ufffd|m12 bytes are missing|o\ufffd\ufffd"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
	}
}

func TestTimeDoesNotGoBack(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, header)
	for _, at := range []time.Duration{3 * time.Second, time.Second, 5 * time.Second, -time.Second} {
		w.Output(at, []byte("x"))
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	var got []time.Duration
	for _, e := range events(t, file.String()) {
		got = append(got, e.At/time.Second)
	}
	if len(got) != 4 || got[0] != 3 || got[1] != 3 || got[2] != 5 || got[3] != 5 {
		t.Errorf("times %v", got)
	}
}

func TestLargeOutputIsSeveralEvents(t *testing.T) {
	said := strings.Repeat("\x01€", maxData)
	var file bytes.Buffer
	w := NewWriter(&file, header)
	w.Output(0, []byte(said))
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, file.String()); got != said {
		t.Error("it is not what was printed")
	}
	for line := range strings.Lines(file.String()) {
		if len(line) > maxLine {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// A file that was cut off anywhere can be played, and gone on with.
func TestACutFileGoesOn(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, header)
	for i := range 5 {
		w.Output(time.Duration(i)*time.Second, []byte(strings.Repeat("é", i+1)+"\n"))
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	whole := file.String()
	path := filepath.Join(t.TempDir(), "cast")
	for cut := range len(whole) + 1 {
		torn := whole[:cut]
		end := strings.LastIndexByte(torn, '\n') + 1
		if end > 0 {
			want := events(t, torn[:end])
			if got := events(t, torn); len(got) != len(want) {
				t.Fatalf("cut at %d: %d events, want %d", cut, len(got), len(want))
			}
		}
		if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		length, last, err := TailOf(f)
		f.Close()
		if err != nil || length != int64(end) {
			t.Fatalf("cut at %d: whole lines up to %d (%v), want %d", cut, length, err, end)
		}
		if n := strings.Count(torn, "\n"); n > 1 && last != time.Duration(n-2)*time.Second {
			t.Fatalf("cut at %d: the last event was at %s", cut, last)
		}
	}
	b := bytes.NewBufferString(whole)
	w = Continue(b, 4*time.Second)
	w.Mark(time.Second, "again")
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if all := events(t, b.String()); len(all) != 6 || all[5].At != 4*time.Second {
		t.Errorf("%+v", all)
	}
}

func TestTailOfLongLines(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, header)
	w.Output(time.Second, bytes.Repeat([]byte{1}, maxData))
	w.Output(2*time.Second, bytes.Repeat([]byte{1}, maxData))
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	size := int64(file.Len())
	file.WriteString(`[3.0, "o", "`)
	length, last, err := Tail(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil || length != size || last != 2*time.Second {
		t.Errorf("%d of %d, %s, %v", length, size, last, err)
	}
	if _, _, err := Tail(strings.NewReader(strings.Repeat("x", 3*maxLine)), 3*maxLine); !errors.Is(err, ErrFormat) {
		t.Errorf("a file that is one line: %v", err)
	}
}

// events reads a file.
func events(t *testing.T, file string) []Event {
	t.Helper()
	r, err := NewReader(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var all []Event
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// shown is all output of a file.
func shown(t *testing.T, file string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events(t, file) {
		if e.Code == Output {
			b.WriteString(e.Data)
		}
	}
	return b.String()
}

// FuzzWriter: whatever is printed, in whatever pieces, the file can be read,
// and holds the same.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("plain\n"), uint8(3))
	f.Add([]byte("\xe2\x82\xac\xff\xf0\x9f"), uint8(1))
	f.Fuzz(func(t *testing.T, said []byte, step uint8) {
		var file bytes.Buffer
		w := NewWriter(&file, Header{Width: 80, Height: 24, Title: string(said)})
		n := int(step) + 1
		for p := said; len(p) > 0; p = p[min(n, len(p)):] {
			w.Output(time.Second, p[:min(n, len(p))])
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(file.String()) {
			if !json.Valid([]byte(line)) {
				t.Fatalf("the line %q", line)
			}
		}
		got := shown(t, file.String())
		if !utf8.ValidString(got) || got != string([]rune(string(said))) {
			t.Fatalf("printed %q, recorded %q", said, got)
		}
	})
}
