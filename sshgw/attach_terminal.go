package sshgw

import "strings"

// terminal follows what is written to a client's terminal, as far as it must be
// known to leave it as it was found, and to say something in between: where one
// control sequence ends and the next begins, and which modes a program has
// switched on. It keeps no picture of the screen.
//
// What is written comes from a sandbox: any bytes may come, and any number of
// them.
type terminal struct {
	state  byte
	rest   byte   // bytes of a UTF-8 character that have not come yet
	prefix byte   // of the control sequence: '?', '>', '<', '=' or 0
	middle byte   // its intermediate byte, or 0
	params [8]int // its parameters
	n      int    // index of the last one
	set    uint32 // bits of modes that differ from a fresh terminal's
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

// mode is something a program switches on and a client that leaves must have
// switched off.
type mode struct {
	number int  // of the private mode; 0 for what is no private mode
	reset  bool // a fresh terminal has it on
	undo   string
}

// The modes, in the order in which they are undone: the alternate screen goes
// last, and takes the cursor back to where it was before.
var modes = [...]mode{
	{1, false, "\x1b[?1l"},         // cursor keys
	{5, false, "\x1b[?5l"},         // reverse video
	{6, false, "\x1b[?6l"},         // origin
	{7, true, "\x1b[?7h"},          // wrapping
	{25, true, "\x1b[?25h"},        // the cursor is seen
	{9, false, "\x1b[?9l"},         // mouse
	{1000, false, "\x1b[?1000l"},   // mouse
	{1002, false, "\x1b[?1002l"},   // mouse
	{1003, false, "\x1b[?1003l"},   // mouse
	{1004, false, "\x1b[?1004l"},   // focus
	{1005, false, "\x1b[?1005l"},   // mouse
	{1006, false, "\x1b[?1006l"},   // mouse
	{1015, false, "\x1b[?1015l"},   // mouse
	{1016, false, "\x1b[?1016l"},   // mouse
	{2004, false, "\x1b[?2004l"},   // bracketed paste
	{2026, false, "\x1b[?2026l"},   // drawing is held back
	{2031, false, "\x1b[?2031l"},   // changes of colour are told
	{0, false, "\x1b>"},            // keypad
	{0, false, "\x1b[>4m"},         // modified keys
	{0, false, "\x1b[=0u"},         // keyboard of kitty
	{0, false, "\x1b[0 q"},         // shape of the cursor
	{0, false, "\x1b7\x1b[r\x1b8"}, // scrolling region
	{47, false, "\x1b[?47l"},       // alternate screen
	{1047, false, "\x1b[?1047l"},   // alternate screen
	{1049, false, "\x1b[?1049l"},   // alternate screen
}

// Indexes of those that are no private modes.
const (
	keypad = iota + 17
	modifiedKeys
	kittyKeyboard
	cursorShape
	scrollRegion
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
			t.control(b)
		case str:
			switch b {
			case 0x1b:
				t.state = strEscape
			case 0x07, 0x18, 0x1a:
				t.state = between
			}
		case strEscape:
			if b == '\\' {
				t.state = between
			} else {
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
	t.state = between
	switch b {
	case 0x1b:
		t.state = escape
	case '[':
		*t = terminal{state: sequence, set: t.set}
	case ']', 'P', '_', '^', 'X':
		t.state = str
	case '=':
		t.turn(keypad, true)
	case '>':
		t.turn(keypad, false)
	case 'c':
		t.set = 0
	default:
		if ' ' <= b && b <= '/' {
			t.state = charset
		}
	}
}

// control takes a byte of a control sequence.
func (t *terminal) control(b byte) {
	switch {
	case b == 0x1b:
		t.state = escape
	case b == 0x18 || b == 0x1a:
		t.state = between
	case '0' <= b && b <= '9':
		if v := &t.params[t.n]; *v < 1<<16 {
			*v = *v*10 + int(b-'0')
		}
	case b == ';' || b == ':':
		t.n = min(t.n+1, len(t.params)-1)
		t.params[t.n] = 0
	case '<' <= b && b <= '?':
		t.prefix = b
	case ' ' <= b && b <= '/':
		t.middle = b
	case '@' <= b && b <= '~':
		t.state = between
		t.apply(b)
	}
}

// apply takes notice of a whole control sequence.
func (t *terminal) apply(final byte) {
	switch {
	case t.prefix == '?' && t.middle == 0 && (final == 'h' || final == 'l'):
		for _, number := range t.params[:t.n+1] {
			for i, m := range modes {
				if m.number == number && number > 0 {
					t.turn(i, (final == 'h') != m.reset)
				}
			}
		}
	case t.prefix == 0 && t.middle == 0 && final == 'r':
		t.turn(scrollRegion, t.params != [8]int{})
	case t.prefix == 0 && t.middle == ' ' && final == 'q':
		t.turn(cursorShape, t.params[0] != 0)
	case t.prefix == '>' && final == 'm':
		t.turn(modifiedKeys, t.params[0] == 4 && t.params[1] != 0)
	case final == 'u' && (t.prefix == '>' || t.prefix == '='):
		t.turn(kittyKeyboard, t.params[0] != 0)
	case final == 'u' && t.prefix == '<':
		t.turn(kittyKeyboard, false)
	}
}

func (t *terminal) turn(i int, on bool) {
	t.set &^= 1 << i
	if on {
		t.set |= 1 << i
	}
}

// undo returns what makes the terminal as it was before, whatever is under
// way.
func (t *terminal) undo() string {
	var b strings.Builder
	switch t.state {
	case str, strEscape:
		b.WriteString("\x1b\\")
	case escape, charset, sequence:
		b.WriteByte(0x18) // CAN
	}
	for i, m := range modes {
		if t.set&(1<<i) != 0 {
			b.WriteString(m.undo)
		}
	}
	*t = terminal{}
	b.WriteString("\x1b(B\x0f\x1b[m")
	return b.String()
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

// setTitle returns what shows text as the title, and with first what keeps the
// one that was there. dropTitle brings that back.
func setTitle(text string, first bool) string {
	keep := ""
	if first {
		keep = "\x1b[22;2t"
	}
	return keep + "\x1b]2;" + text + "\a"
}

const dropTitle = "\x1b[23;2t"
