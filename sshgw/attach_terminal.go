package sshgw

import "strings"

// terminal follows what is written to a client's terminal, as far as it must be
// known to say something in between: where one control sequence or character
// ends and the next begins. It keeps no picture of the screen.
//
// What is written comes from a sandbox: any bytes may come.
type terminal struct {
	state byte
	rest  byte // bytes of a UTF-8 character that have not come yet
}

// Where in the stream the terminal is. The zero value is between sequences.
const (
	between   = iota
	escape    // after ESC
	charset   // after ESC and an intermediate byte
	sequence  // in a control sequence (CSI)
	str       // in a string (OSC, DCS, APC, PM, SOS)
	strEscape // after ESC in a string
)

// calm reports whether something can be written now without breaking what is
// under way.
func (t *terminal) calm() bool { return t.state == between && t.rest == 0 }

// follow takes notice of what is written.
func (t *terminal) follow(p []byte) {
	for _, b := range p {
		switch t.state {
		case between:
			t.text(b)
		case escape:
			t.escaped(b)
		case charset:
			if b >= '0' {
				t.state = between
			}
		case sequence:
			switch {
			case b == 0x1b:
				t.state = escape
			case b == 0x18 || b == 0x1a || '@' <= b && b <= '~':
				t.state = between
			}
		case str:
			switch b {
			case 0x1b:
				t.state = strEscape
			case 0x07, 0x18, 0x1a:
				t.state = between
			}
		case strEscape:
			if t.state = between; b != '\\' {
				t.escaped(b)
			}
		}
	}
}

// text takes a byte that belongs to no sequence.
func (t *terminal) text(b byte) {
	switch {
	case b == 0x1b:
		t.state, t.rest = escape, 0
	case b&0xc0 == 0x80 && t.rest > 0:
		t.rest--
	case b >= 0xf5:
		t.rest = 0
	case b >= 0xf0:
		t.rest = 3
	case b >= 0xe0:
		t.rest = 2
	case b >= 0xc2:
		t.rest = 1
	default:
		t.rest = 0
	}
}

// escaped takes a byte that follows ESC.
func (t *terminal) escaped(b byte) {
	switch b {
	case 0x1b:
		t.state = escape
	case '[':
		t.state = sequence
	case ']', 'P', '_', '^', 'X':
		t.state = str
	default:
		t.state = between
		if ' ' <= b && b <= '/' {
			t.state = charset
		}
	}
}

// titles are the terminals whose title can be set the way xterm's can, by the
// beginnings of their types. Others would show it as text.
var titles = []string{
	"xterm", "tmux", "screen", "rxvt", "alacritty", "foot", "kitty", "wezterm", "ghostty", "konsole", "gnome", "vte", "st-", "iterm", "contour", "mintty", "putty",
}

// hasTitle reports whether a terminal of this type has a title.
func hasTitle(term string) bool {
	for _, t := range titles {
		if strings.HasPrefix(term, t) {
			return true
		}
	}
	return false
}

// setTitle returns what shows text as the title; first keeps the one that was
// there, and dropTitle brings it back.
func setTitle(text string, first bool) string {
	keep := ""
	if first {
		keep = "\x1b[22;2t"
	}
	return keep + "\x1b]2;" + text + "\a"
}

const dropTitle = "\x1b[23;2t"
