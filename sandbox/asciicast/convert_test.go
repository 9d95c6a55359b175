package asciicast

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestVersion3(t *testing.T) {
	in := `{"version":2,"width":80,"height":24,"timestamp":1504467315,"title":"Demo","env":{"SHELL":"/bin/zsh","TERM":"xterm"}}
[0.0004, "o", "a"]
[0.0008, "o", "b"]
[0.0012, "o", "<c>"]
[1.5, "r", "90x30"]
[1.5, "m", ""]
[3.25, "o", "bye"]
[4`
	want := `{"version":3,"term":{"cols":80,"rows":24,"type":"xterm"},"timestamp":1504467315,"title":"Demo","env":{"SHELL":"/bin/zsh"}}
[0.000, "o", "a"]
[0.001, "o", "b"]
[0.000, "o", "<c>"]
[1.499, "r", "90x30"]
[0.000, "m", ""]
[1.750, "o", "bye"]
`
	var out strings.Builder
	if err := ConvertV3(&out, strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	out.Reset()
	if err := CopyV2(&out, iotest.OneByteReader(strings.NewReader(in))); err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSuffix(in, "[4"); out.String() != want {
		t.Errorf("a copy is %q", &out)
	}
}

func TestPlainText(t *testing.T) {
	for in, want := range map[string]string{
		"one\r\ntwo\r\n":                             "one\ntwo\n",
		"no end":                                     "no end\n",
		"\x1b[1;31mred\x1b[0m\r\n\r\nx":              "red\n\nx\n",
		"lss\b \b -l\r\n":                            "ls -l\n",
		" 10%\r 50%\r100%\r\n":                       "100%\n",
		"$ mak\x1b[3Dfake\x1b[K\r\n":                 "$ fake\n",
		"abc\x1b[2D\x1b[@X\r\n":                      "aXbc\n",
		"abcd\x1b[3D\x1b[2P\r\n":                     "ad\n",
		"abcd\x1b[2;1Hnext\r\n":                      "abcd\nnext\n",
		"a\tb\r\n":                                   "a       b\n",
		"\x1b]0;title of ÜÖ\x07$ \r\n":               "$\n",
		"\x1b]52;c;ZXZpbA==\x1b\\x\r\n":              "x\n",
		"\x1bP+q544e\x1b\\\x1b_Gi=1\x1b\\y":          "y\n",
		"\u009b31mred\u009d0;t\u009cz":               "redz\n",
		"\x1b[?1049h\x1b[H\x1b[2J~\x1b[?1049lback\n": "~back\n",
		"half \x1b[":                                 "half\n",
		"\x1b[999999C!":                              "!\n",
		"\x1b[65535C!":                               strings.Repeat(" ", maxColumns-1) + "!\n",
		"日本語 text\r\n":                               "日本語 text\n",
		"x\x18y\x1b\x1az":                            "xyz\n",
	} {
		var file, out bytes.Buffer
		w := NewWriter(&file, header)
		for i := range len(in) { // in any pieces
			w.Output(0, []byte{in[i]})
		}
		w.Input(0, []byte("not this"))
		w.Mark(0, "nor this")
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		if err := ConvertText(&out, &file); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%q: %q, want %q", in, &out, want)
		}
	}
}

// What can be had of a recording that grows is passed on before the rest is
// there.
func TestConversionsDoNotWait(t *testing.T) {
	for name, convert := range map[string]func(io.Writer, io.Reader) error{"v2": CopyV2, "v3": ConvertV3, "text": ConvertText} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe()
			seen := make(chan string, 16)
			done := make(chan error, 1)
			go func() { done <- convert(toChannel(seen), r) }()
			cast := NewWriter(w, header)
			cast.Output(time.Second, []byte("hello\n"))
			if err := cast.Flush(); err != nil {
				t.Fatal(err)
			}
			for all := ""; !strings.Contains(all, "hello"); {
				all += <-seen
			}
			w.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

type toChannel chan string

func (c toChannel) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}
