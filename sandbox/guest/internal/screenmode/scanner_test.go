package screenmode

import (
	"math/bits"
	"regexp"
	"strings"
	"testing"
)

func modesOf(output string) string {
	var s Scanner
	s.Write([]byte(output))
	return s.String()
}

func TestScanner(t *testing.T) {
	for _, tc := range []struct{ name, output, want string }{
		{"text", "hello\r\n", ""},
		{"what a new terminal has", "\x1b[?25h\x1b[?7h\x1b[?2004l\x1b>\x0f\x1b(B\x1b[r\x1b[0 q", ""},
		{"a shell", "\x1b[?2004h$ ", "\x1b[?2004h"},
		{"on and off", "\x1b[?2004h$ \x1b[?2004l", ""},
		{"vim", "\x1b[?1049h\x1b[?1h\x1b=\x1b[1;24r\x1b[?12h\x1b[?25l\x1b[2 q", "\x1b[?1049h\x1b=\x1b[1;24r\x1b[?1h\x1b[?12h\x1b[?25l\x1b[2 q"},
		{"several in one", "\x1b[?1000;1006;2004h", "\x1b[?1000h\x1b[?1006h\x1b[?2004h"},
		{"any screen switches back", "\x1b[?1049h\x1b[?47l", ""},
		{"no wrapping", "\x1b[?7l", "\x1b[?7l"},
		{"insert and newline", "\x1b[4h\x1b[20h", "\x1b[4h\x1b[20h"},
		{"line drawing", "\x1b(0\x1b)A", "\x1b(0\x1b)A"},
		{"shift out", "a\x0eb", "\x0e"},
		{"shift in", "a\x0eb\x0f", ""},
		{"locking shift", "\x1bn", "\x1bn"},
		{"modify other keys", "\x1b[>4;2m", "\x1b[>4;2m"},
		{"colours are no keys", "\x1b[4;2m\x1b[38:5:1m", ""},
		{"title", "\x1b]0;me@box: ~\x07", "\x1b]2;me@box: ~\x07"},
		{"title to ST", "\x1b]2;ünï\x1b\\", "\x1b]2;ünï\x07"},
		{"printable title", "\x1b]2;a\x01\x9b[2J\u202eb\n\x07", "\x1b]2;a[2Jb\x07"},
		{"long title", "\x1b]2;" + strings.Repeat("x", 1000) + "\x07", "\x1b]2;" + strings.Repeat("x", maxTitle) + "\x07"},
		{"not the title", "\x1b]52;c;c2VjcmV0\x07\x1b]1;icon\x07", ""},
		{"reset", "\x1b[?1049h\x1b[?25l\x1b=\x1b]2;x\x07\x1bc", ""},
		{"soft reset", "\x1b[?1h\x1b[?25l\x1b=\x1b[4h\x1b[2;5r\x1b[!p", ""},
		{"region without an end", "\x1b[5r", "\x1b[5r"},
		{"region upside down", "\x1b[2;9r\x1b[9;2r", ""},
		{"unknown modes", "\x1b[?3h\x1b[?9999h\x1b[?1048h\x1b[99h", ""},
		{"other finals", "\x1b[?2004$h\x1b[>2004h\x1b[2004h\x1b[?6q", ""},
		{"too long", "\x1b[?" + strings.Repeat("1;", 100) + "25l", ""},
		{"numbers without end", "\x1b[?" + strings.Repeat("9", 50) + "h", ""},
		{"cancelled", "\x1b[?25\x18l\x1b[?25\x1al", ""},
		{"started anew", "\x1b[?99\x1b[?25l", "\x1b[?25l"},
		{"control inside", "\x1b[?2\x0e5\nl", "\x0e\x1b[?25l"},
		{"strings say nothing", "\x1bP\x1b\\\x1b_[?25l\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\", ""},
		{"a sequence ends a string", "\x1b]0;x\x1b[?25l", "\x1b[?25l"},
		{"two byte set", "\x1b(%5", ""},

		{"in the middle: escape", "x\x1b", "\x1b"},
		{"in the middle: CSI", "\x1b[?1049h\x1b[?20", "\x1b[?1049h\x1b[?20"},
		{"in the middle: set", "\x1b(", "\x1b("},
		{"in the middle: title", "\x1b]0;ab", "\x1b]2;ab"},
		{"in the middle: title's number", "\x1b]0", "\x1b]2"},
		{"in the middle: OSC", "\x1b]", "\x1b]"},
		{"in the middle: another OSC", "\x1b]52;c;AAAA", "\x1b]9999;"},
		{"in the middle: end of OSC", "\x1b]0;ab\x1b", "\x1b]2;ab\x1b"},
		{"in the middle: DCS", "\x1bPq#0", "\x1b_"},
		{"in the middle: end of DCS", "\x1bPq#0\x1b", "\x1b_\x1b"},
		{"in the middle: a long CSI", "\x1b[" + strings.Repeat("1;", 100), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := modesOf(tc.output)
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if again := modesOf(got); again != got {
				t.Errorf("written to a new terminal it is %q, which comes to %q", got, again)
			}
			var s Scanner
			for i := range len(tc.output) {
				s.Write([]byte{tc.output[i]})
			}
			if s.String() != got {
				t.Errorf("byte for byte it is %q, and in one %q", s.String(), got)
			}
		})
	}
}

// Every mode of the table has a place in the set, and is restored.
func TestEveryMode(t *testing.T) {
	if len(privateModes) > bits.UintSize {
		t.Fatal("the set is too small")
	}
	for _, mode := range privateModes {
		on := string(appendMode(nil, mode, true))
		off := string(appendMode(nil, mode, false))
		if onAtFirst(mode) {
			on, off = off, on
		}
		if got := modesOf(on); got != on {
			t.Errorf("%q comes to %q", on, got)
		}
		if got := modesOf(on + off); got != "" {
			t.Errorf("%q comes to %q", on+off, got)
		}
	}
}

func TestScannerAllocatesNothing(t *testing.T) {
	output := []byte(strings.Repeat("text \x1b[1m\x1b]0;title\x07\x1b[?25l\x1bPdcs\x1b\\\x0e", 100))
	var s Scanner
	if n := testing.AllocsPerRun(10, func() { s.Write(output) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// allowed is all that String ever says.
var allowed = regexp.MustCompile("^(\x1b\\]2;[^\x00-\x1f\x7f]*\x07)?" +
	"(\x1b\\[\\?[0-9]+[hl]|\x1b[()*+][0-~]|\x0e|\x1b[no=]|\x1b\\[(4|20)h|\x1b\\[[0-9]+(;[0-9]+)?r|\x1b\\[>4;[1-3]m|\x1b\\[[1-6] q)*" +
	"(\x1b[ ()*+]?|\x1b\\[[ -?]*|\x1b\\](2(;[^\x00-\x1f\x7f]*)?|9999;)?\x1b?|\x1b_\x1b?)?$")

func FuzzClean(f *testing.F) {
	for _, seed := range []string{
		"\x1b[?1049h\x1b[?1h\x1b=\x1b[1;24r", "\x1b]0;t\x07\x1b]2;\xff\x1b\\", "\x1b[?2", "\x1bPx", "\x1b(0\x0e", "\x1b[!p\x1bc", "\x1b[>4;2m\x1b[4 q",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		clean := Clean(text)
		if !allowed.MatchString(clean) {
			t.Fatalf("%q comes to %q", text, clean)
		}
		if again := Clean(clean); again != clean {
			t.Errorf("%q comes to %q, and that to %q", text, clean, again)
		}
		if len(clean) > 1<<10 {
			t.Errorf("%d bytes", len(clean))
		}
	})
}

func BenchmarkScanner(b *testing.B) {
	text := []byte(strings.Repeat("the quick brown fox jumps over the lazy dog\r\n", 1000))
	b.SetBytes(int64(len(text)))
	var s Scanner
	for b.Loop() {
		s.Write(text)
	}
}
