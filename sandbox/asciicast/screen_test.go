package asciicast

import (
	"regexp"
	"strings"
	"testing"
)

func TestScreenShowsWhatIsToBeSeen(t *testing.T) {
	for _, in := range []string{
		"plain text\r\n\tand\b \a more", "\x1b[1;31mred\x1b[0m \x1b[38;5;208m\x1b[38:2::1:2:3mx", "\x1b[2J\x1b[H\x1b[10;20Hx\x1b[3A\x1b[K\x1b[1J",
		"\x1b[?25l\x1b[?25h", "\x1b7\x1b8\x1b[s\x1b[u", "\x1b[2;20r\x1bM\x1bD\x1bE", "\x1b(0lqk\x1b(B\x0e\x0f", "\x1b[4h\x1b[4l", "\x1b[5 q", "日本語é😀",
		"\x1b[?1049h", "\x1b[3S\x1b[2T\x1b[4L\x1b[4M\x1b[2@\x1b[2P\x1b[2X\x1b[7b",
	} {
		if got := screened(t, in); got != in {
			t.Errorf("%q is shown as %q", in, got)
		}
	}
}

func TestScreenKeepsBackTheRest(t *testing.T) {
	for name, in := range map[string]string{
		"clipboard":               "\x1b]52;c;cm0gLXJm\x07",
		"clipboard, asked for":    "\x1b]52;c;?\x1b\\",
		"clipboard, C1":           "\u009d52;c;cm0gLXJm\u009c",
		"clipboard, kitty":        "\x1b]5522;type=write\x1b\\",
		"title":                   "\x1b]0;x\x07\x1b]2;x\x1b\\\x1b]1;x\x07",
		"title, Sun":              "\x1b]lx\x1b\\\x1b]Lx\x1b\\",
		"title, screen":           "\x1bkx\x1b\\",
		"title, pushed and told":  "\x1b[22;0t\x1b[21t\x1b[23t",
		"colours":                 "\x1b]4;1;#fff\x07\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]104\x07",
		"working directory":       "\x1b]7;file://h/etc\x07",
		"link":                    "\x1b]8;;https://evil.example\x07\x1b]8;;\x07",
		"notification":            "\x1b]9;hi\x07\x1b]777;notify;a;b\x07\x1b]99;;x\x1b\\",
		"iTerm2":                  "\x1b]1337;File=inline=0:aaaa\x07",
		"device attributes":       "\x1b[c\x1b[0c\x1b[>c\x1b[=c\x1bZ",
		"status and position":     "\x1b[5n\x1b[6n\x1b[?6n\x1b[?996n",
		"modes":                   "\x1b[?25$p\x1b[4$p",
		"version":                 "\x1b[>q\x1b[>0q",
		"parameters":              "\x1b[x\x1b[1x",
		"window":                  "\x1b[8;24;80t\x1b[14t\x1b[18t\x1b[3;0;0t\x1b[2t",
		"settings":                "\x1bP$qm\x1b\\",
		"termcap":                 "\x1bP+q544e\x1b\\\u0090+q544e\u009c",
		"checksum":                "\x1b[1;1;1;1;5;5*y",
		"answerback":              "\x05",
		"kitty keyboard":          "\x1b[?u\x1b[>1u\x1b[=1;1u\x1b[<u",
		"other keys":              "\x1b[>4;2m\x1b[?4m\x1b[?1h\x1b[?66h\x1b=\x1b>",
		"mouse":                   "\x1b[?1000h\x1b[?1002;1003;1006h\x1b[?9h\x1b[1;2;3;4;5T",
		"focus and paste":         "\x1b[?1004h\x1b[?2004h\x1b[?2031h\x1b[?2048h",
		"printing":                "\x1b[5i\x1b[?5i",
		"pictures":                "\x1bPq#0;2;0;0;0\x1b\\\x1b_Gf=100;AAAA\x1b\\",
		"keys":                    "\x1bP1;1|17/68\x1b\\",
		"history":                 "\x1b[3J",
		"tabs":                    "\x1b[3g\x1bH",
		"other strings":           "\x1bXsos\x1b\\\x1b^pm\x1b\\",
		"sequence without an end": "\x1b[" + strings.Repeat("1;", 200) + "m",
		"number without an end":   "\x1b[" + strings.Repeat("9", 60) + "C",
		"languages":               "\x1b%@\x1b%G\x1b F",
		"C1":                      "\u0084\u0085\u008d\u009a",
		"stray":                   "\x00\x01\x02\x7f",
	} {
		if got := screened(t, in); got != "" {
			t.Errorf("%s: %q is shown as %q", name, in, got)
		}
	}
	if got := screened(t, "\x1b[?1000;25;2004l\x1b[?1049;1006h"); got != "\x1b[?25l\x1b[?1049h" {
		t.Errorf("of modes together %q are left", got)
	}
	if got := screened(t, "\x1b]0;a\x1b[31mred\x1b]2;never ends"); got != "\x1b[31mred" {
		t.Errorf("after a string that was broken off: %q", got)
	}
}

func TestScreenLeavesATerminalInOrder(t *testing.T) {
	var out strings.Builder
	s := NewScreen(&out)
	if err := s.Show("\x1b[?1049h\x1b[?25l\x1b[31m\x1b]0;half a title"); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[?1049l", "\x1b[?25h", "\x1b[0m", "\x1b[!p"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q has no %q", &out, want)
		}
	}
	out.Reset()
	if err := s.Show("x"); err != nil || out.String() != "x" {
		t.Errorf("after that %q (%v)", &out, err)
	}
	out.Reset()
	if err := s.Close(); err != nil || strings.Contains(out.String(), "1049") {
		t.Errorf("the other screen is left again: %q (%v)", &out, err)
	}
}

func screened(t *testing.T, in string) string {
	t.Helper()
	var out strings.Builder
	s := NewScreen(&out)
	for _, r := range in { // in any pieces
		if err := s.Show(string(r)); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// allowed is all that a Screen may ever write.
var allowed = regexp.MustCompile(`^(?:[^\x00-\x1f\x7f\x{80}-\x{9f}]|[\x07-\x0f]|` +
	`\x1b[78DEM]|\x1b#[34568]|\x1b[()*+][0AB]|` +
	`\x1b\[[0-9;:]*[@A-Z` + "`" + `abdefhlmrsu]|\x1b\[\??[0-9;:]*[JK]|\x1b\[[0-9;:]*(?: q|!p)|` +
	`\x1b\[\?(?:5|6|7|12|25|47|1047|1048|1049|2026)[hl])*$`)

// FuzzScreen: whatever is shown, nothing else than what is allowed reaches the
// terminal, and what did is shown as it is when it is shown again.
func FuzzScreen(f *testing.F) {
	f.Add("text \x1b[1;31mred\x1b]0;t\x07\x1b[c\x1bP\x1b\\\u009b6n")
	f.Add("\x1b[?1000;25h\x1b[>c\x1b(0\x1b#8\x1bc")
	f.Fuzz(func(t *testing.T, in string) {
		in = string([]rune(in)) // as it comes from a recording
		var out, again strings.Builder
		if err := NewScreen(&out).Show(in); err != nil {
			t.Fatal(err)
		}
		if !allowed.MatchString(out.String()) {
			t.Fatalf("%q is shown as %q", in, &out)
		}
		if err := NewScreen(&again).Show(out.String()); err != nil {
			t.Fatal(err)
		}
		if out.String() != again.String() {
			t.Fatalf("%q is shown as %q, and that as %q", in, &out, &again)
		}
	})
}
