package asciicast

import (
	"errors"
	"io"
	"strings"
	"testing"
)

const firstLine = `{"version":2,"width":80,"height":24}` + "\n"

func TestReaderRefuses(t *testing.T) {
	for _, file := range []string{
		"\n", "hello\n", "[]\n", `{"version":3,"term":{"cols":80,"rows":24}}` + "\n", `{"version":2}` + "\n",
		`{"version":2,"width":-1,"height":24}` + "\n", `{"version":2,"width":80,"height":70000}` + "\n",
		firstLine + "{}\n", firstLine + "[1]\n", firstLine + `[1, "o"]` + "\n", firstLine + `[1, "o", "x", 2]` + "\n",
		firstLine + `[-1, "o", "x"]` + "\n", firstLine + `[1e300, "o", "x"]` + "\n", firstLine + `["1", "o", "x"]` + "\n",
		firstLine + `[1, "out", "x"]` + "\n", firstLine + `[1, "o", null]` + "\n", firstLine + `[null, "o", "x"]` + "\n",
		firstLine + `[1, "o", "` + strings.Repeat("x", maxLine) + `"]` + "\n",
	} {
		r, err := NewReader(strings.NewReader(file))
		if err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%.60q: %v", file, err)
		}
	}
	if _, err := NewReader(strings.NewReader("")); !errors.Is(err, io.EOF) {
		t.Errorf("an empty file: %v", err)
	}
}

func TestReaderLeavesOutWhatItDoesNotKnow(t *testing.T) {
	all := events(t, firstLine+"\n"+`[1, "x", "0"]`+"\n"+`[2,"o","a"]`+"\n"+`[1.5,"m","b"]`+"\n"+`[9,"o","to`)
	if len(all) != 2 || all[0].Data != "a" || all[1].Data != "b" || all[1].At != all[0].At {
		t.Errorf("%+v", all)
	}
}

// FuzzReader: whatever the file, events are bounded and in order.
func FuzzReader(f *testing.F) {
	f.Add([]byte(firstLine + `[0.1, "o", "hi"]` + "\n" + `[0.2, "r", "90x30"]` + "\n"))
	f.Add([]byte(firstLine + `[1e3, "m", "\ud800"]` + "\n[2"))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader(strings.NewReader(string(file)))
		if err != nil {
			return
		}
		var last Event
		for {
			e, err := r.Next()
			if err != nil {
				break
			}
			if e.At < last.At || e.At > maxTime || len(e.Data) > len(file) {
				t.Fatalf("%+v after %+v", e, last)
			}
			last = e
		}
		for _, convert := range []func(io.Writer, io.Reader) error{CopyV2, ConvertV3, ConvertText} {
			var out strings.Builder
			if err := convert(&out, strings.NewReader(string(file))); err != nil && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
		}
	})
}
