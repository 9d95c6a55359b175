package sshgw

import (
	"strings"
	"testing"
)

// What a program has switched on is switched off, whatever it was in the middle
// of, and nothing else is.
func TestTerminalUndo(t *testing.T) {
	const end = "\x1b(B\x0f\x1b[m"
	for written, want := range map[string]string{
		"":                                   "",
		"plain\r\n\x1b[31mred\x1b[m":         "",
		"\x1b[?1049h\x1b[?1049l":             "",
		"\x1b[?1049h":                        "\x1b[?1049l",
		"\x1b[?25l\x1b[?2004h":               "\x1b[?25h\x1b[?2004l",
		"\x1b[?1;1000;1006h":                 "\x1b[?1l\x1b[?1000l\x1b[?1006l",
		"\x1b[?7l\x1b[?7h\x1b=\x1b>\x1b=":    "\x1b>",
		"\x1b[>4;2m":                         "\x1b[>4m",
		"\x1b[>4;2m\x1b[>4;0m\x1b[>4m":       "",
		"\x1b[>1u":                           "\x1b[=0u",
		"\x1b[>1u\x1b[<u":                    "",
		"\x1b[5 q":                           "\x1b[0 q",
		"\x1b[5 q\x1b[ q":                    "",
		"\x1b[2;10r":                         "\x1b7\x1b[r\x1b8",
		"\x1b[2;10r\x1b[r":                   "",
		"\x1b[?1049h\x1bc":                   "",
		"\x1b]0;\x1b[?1049h\a":               "\x1b[?1049l", // ESC ends a string
		"\x1b]0;[?1049h\a":                   "",
		"\x1bP+q\x1b\\\x1b[?25l":             "\x1b[?25h",
		"\x1b[?104\x189h":                    "",
		"\x1b[?1049":                         "\x18",
		"\x1b]2;title":                       "\x1b\\",
		"\x1b[?99999999999999999999999h":     "",
		"\x1b[1;2;3;4;5;6;7;8;9;10;11;1049h": "",
	} {
		var term terminal
		for i := range len(written) {
			term.follow([]byte{written[i]})
		}
		if got := term.undo(); got != want+end {
			t.Errorf("%q is undone with %q, want %q", written, got, want+end)
		}
		if !term.calm() || term.undo() != end {
			t.Errorf("%q: something is left", written)
		}
	}
}

// Something can be said between sequences and characters, not within.
func TestTerminalCalm(t *testing.T) {
	for written, want := range map[string]bool{
		"": true, "a": true, "é": true, "é"[:1]: false, "€"[:2]: false, "𝄞"[:3]: false, "𝄞": true, "\xff": true, "\x80": true,
		"\x1b": false, "\x1b[": false, "\x1b[1": false, "\x1b[1m": true, "\x1b(": false, "\x1b(B": true, "\x1b7": true,
		"\x1b]2;x": false, "\x1b]2;x\a": true, "\x1b]2;x\x1b": false, "\x1b]2;x\x1b\\": true, "\x1bPq\n": false,
		"\xc3\x1b[m": true, "\xe2x": true,
	} {
		var term terminal
		if term.follow([]byte(written)); term.calm() != want {
			t.Errorf("%q: calm is %v, want %v", written, !want, want)
		}
	}
}

// Whatever a sandbox prints, the terminal can be left.
func FuzzTerminal(f *testing.F) {
	for _, s := range []string{"", "\x1b[?1049h", "\x1b]0;x\a", "\x1b[1;2;3;4;5;6;7;8;9;10r", "\x1b[>4;2m", "€\x1b", "\x1bP\x1b\x1b[?25l"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var term terminal
		term.follow(b)
		// In one piece or byte by byte is the same.
		var again terminal
		for i := range b {
			again.follow(b[i : i+1])
		}
		if term != again {
			t.Fatalf("%q: %+v in one piece, %+v byte by byte", b, term, again)
		}
		undo := term.undo()
		if len(undo) > 300 || strings.ContainsAny(undo, "\a\n") {
			t.Fatalf("%q is undone with %q", b, undo)
		}
		// Read by another terminal that was told the same, it undoes all.
		again.follow([]byte(undo))
		if !again.calm() || again.set != 0 {
			t.Fatalf("%q: after %q there is %+v", b, undo, again)
		}
	})
}
