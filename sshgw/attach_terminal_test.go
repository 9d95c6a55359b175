package sshgw

import "testing"

// Something can be said between sequences and characters, not within.
func TestTerminalCalm(t *testing.T) {
	for written, want := range map[string]bool{
		"": true, "a": true, "é": true, "é"[:1]: false, "€"[:2]: false, "𝄞"[:3]: false, "𝄞": true, "\xff": true, "\x80": true,
		"\x1b": false, "\x1b[": false, "\x1b[1": false, "\x1b[1m": true, "\x1b[?1049h": true, "\x1b(": false, "\x1b(B": true, "\x1b7": true,
		"\x1b]2;x": false, "\x1b]2;x\a": true, "\x1b]2;x\x1b": false, "\x1b]2;x\x1b\\": true, "\x1bPq\n": false, "\x1b]0;\x1b[": false,
		"\xc3\x1b[m": true, "\xe2x": true, "\x1b[1\x18": true, "\x1b\x1b": false, "\x1b[1\x1b[m": true,
	} {
		var term terminal
		if term.follow([]byte(written)); term.calm() != want {
			t.Errorf("%q: calm is %v, want %v", written, !want, want)
		}
		// In one piece or byte by byte is the same.
		var again terminal
		for i := range len(written) {
			again.follow([]byte{written[i]})
		}
		if term != again {
			t.Errorf("%q: %+v in one piece, %+v byte by byte", written, term, again)
		}
	}
}

// Whatever a sandbox prints, what its terminals understand as the end of
// everything makes it calm.
func FuzzTerminal(f *testing.F) {
	for _, s := range []string{"", "\x1b[?1049h", "\x1b]0;x\a", "\x1b[1;2;3;4", "€\x1b", "\x1bP\x1b\x1b[?25l", "\x1b#", "\xf0\x9f"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var term terminal
		term.follow(b)
		if term.follow([]byte("\x1b\\.")); !term.calm() {
			t.Errorf("%q: %+v", b, term)
		}
	})
}
