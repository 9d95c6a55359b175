package screen

import (
	"bytes"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// modeSet are the modes that are not what they are in a new terminal.
type modeSet uint64

// The modes that have no number of a private one.
const (
	insertMode = 63 - iota
	newLine
	keypad
)

// The places of modes 7 and 25.
const (
	autoWrap   = 2
	showCursor = 4
)

// privateModes are the modes that are kept, by their place in a modeSet. Those
// that make a terminal say something by itself when they are set are not.
var privateModes = []uint16{
	1,    // cursor keys send application codes
	5,    // reverse video
	7,    // wrap at the margin
	12,   // the cursor blinks
	25,   // the cursor shows
	45,   // wrap backwards
	66,   // the keypad, as ESC =
	9,    // the mouse, in all its ways
	1000, //
	1001,
	1002,
	1003,
	1004, // focus
	1005,
	1006,
	1007,
	1015,
	1016,
	1034,
	1035,
	1036,
	1039,
	2004, // pasting
	2027, // width of clusters
	2031, // colour schemes
}

// onAtFirst tells the modes that a new terminal has set.
func onAtFirst(mode uint16) bool {
	return mode == 7 || mode == 25 || mode == 1034 || mode == 1035 || mode == 1036
}

// has reports whether the mode at a place is on.
func (m modeSet) has(place int) bool {
	changed := m&(1<<place) != 0
	if place < len(privateModes) && onAtFirst(privateModes[place]) {
		return !changed
	}
	return changed
}

func (m *modeSet) set(place int, on bool) {
	if m.has(place) != on {
		*m ^= 1 << place
	}
}

// private sets a mode by its number.
func (m *modeSet) private(mode uint16, on bool) {
	if mode == 66 {
		m.set(keypad, on)
	} else if i := slices.Index(privateModes, mode); i >= 0 {
		m.set(i, on)
	}
}

// append appends the sequences that make a new terminal's modes these, or with
// off, these a new terminal's.
func (m modeSet) append(b []byte, off bool) []byte {
	for i, mode := range privateModes {
		if m&(1<<i) != 0 {
			b = appendPrivate(b, mode, m.has(i) != off)
		}
	}
	if m.has(insertMode) {
		b = append(b, "\x1b[4"...)
		b = append(b, letter(!off))
	}
	if m.has(newLine) {
		b = append(b, "\x1b[20"...)
		b = append(b, letter(!off))
	}
	if m.has(keypad) {
		if off {
			return append(b, "\x1b>"...)
		}
		b = append(b, "\x1b="...)
	}
	return b
}

func letter(on bool) byte {
	if on {
		return 'h'
	}
	return 'l'
}

func appendPrivate(b []byte, mode uint16, on bool) []byte {
	b = strconv.AppendUint(append(b, "\x1b[?"...), uint64(mode), 10)
	return append(b, letter(on))
}

// Modes follows what a program switches on at a terminal. The zero value is a
// terminal that nobody has touched. It costs little: text passes it unread.
type Modes struct {
	parser    parser
	set       modeSet
	screen    uint16 // the mode that has switched to the alternate screen
	keys      [2]uint8
	otherKeys bool
	style     bool
	region    bool
	sets      bool // character sets
	pen       bool
}

// Write takes what is sent to the terminal.
func (m *Modes) Write(b []byte) {
	for len(b) > 0 {
		if m.parser.state == ground {
			i := bytes.IndexByte(b, esc)
			text := b
			if i >= 0 {
				text = b[:i]
			}
			m.sets = m.sets || bytes.IndexByte(text, 0x0e) >= 0
			if i < 0 {
				return
			}
			b = b[i:]
		}
		m.parser.feed(m, b[0])
		b = b[1:]
	}
}

// Off returns what makes the terminal what it was, and forgets all of it. It is
// empty when there is nothing to switch off.
func (m *Modes) Off() []byte {
	var b []byte
	if m.parser.state != ground {
		b = append(b, "\x1b\\"...) // ends a sequence that was cut off, whatever it was
	}
	for i := range m.keys {
		// The stack of the screen in use first.
		page := i
		if m.screen != 0 {
			page = 1 - i
		}
		if n := m.keys[page]; n > 0 {
			b = strconv.AppendUint(append(b, "\x1b[<"...), uint64(n), 10)
			b = append(b, 'u')
		}
		if i == 0 && m.screen != 0 {
			b = appendPrivate(b, m.screen, false)
			m.pen, m.sets = true, true // those of the other screen come back
		}
	}
	b = m.set.append(b, true)
	if m.otherKeys {
		b = append(b, "\x1b[>4m"...)
	}
	if m.style {
		b = append(b, "\x1b[0 q"...)
	}
	if m.region {
		b = append(b, "\x1b7\x1b[?6l\x1b[r\x1b8"...)
	}
	if m.sets {
		b = append(b, "\x1b(B\x1b)B\x0f"...)
	}
	if m.pen {
		b = append(b, "\x1b[0m"...)
	}
	*m = Modes{}
	return b
}

func (m *Modes) print(rune) {}

func (m *Modes) osc([]byte) {}

func (m *Modes) control(c byte) {
	if c == 0x0e {
		m.sets = true
	}
}

func (m *Modes) escape(between, final byte) {
	switch {
	case between >= '(' && between <= '+':
		m.sets = m.sets || final != 'B'
	case between != 0:
	case final == 'c':
		*m = Modes{}
	case final == '=' || final == '>':
		m.set.set(keypad, final == '=')
	case final == '8':
		m.restored()
	}
}

// restored notes that what was saved has come back, whatever that was.
func (m *Modes) restored() { m.pen, m.sets, m.region = true, true, true }

func (m *Modes) csi(c *sequence) {
	first := c.at(0, 0)
	switch {
	case c.between == ' ' && c.final == 'q':
		m.style = first != 0
	case c.between == '!' && c.final == 'p':
		screen, keys, set := m.screen, m.keys, m.set
		*m = Modes{screen: screen, keys: keys, set: set}
		m.set.private(1, false)
		m.set.private(7, true)
		m.set.private(25, true)
		m.set.set(insertMode, false)
		m.set.set(keypad, false)
	case c.between != 0:
	case c.prefix == '?' && (c.final == 'h' || c.final == 'l'):
		for _, mode := range c.params[:c.n] {
			switch mode {
			case 47, 1047, 1049:
				if m.screen = mode; c.final == 'l' {
					m.screen = 0
					m.restored()
				}
			case 1048:
				m.restored()
			case 6:
				m.region = m.region || c.final == 'h'
			default:
				m.set.private(mode, c.final == 'h')
			}
		}
	case c.prefix == '>' && c.final == 'm' && first == 4:
		m.otherKeys = c.at(1, 0) != 0
	case c.final == 'u' && c.prefix != 0 && c.prefix != '?':
		m.kitty(c)
	case c.prefix != 0:
	case c.final == 'm':
		m.pen = c.params[c.n-1] != 0 || c.n > 1
	case c.final == 'u':
		m.restored()
	case c.final == 'r':
		m.region = m.region || c.given != 0
	case c.final == 'h' || c.final == 'l':
		switch first {
		case 4:
			m.set.set(insertMode, c.final == 'h')
		case 20:
			m.set.set(newLine, c.final == 'h')
		}
	}
}

func (m *Modes) kitty(c *sequence) {
	n := &m.keys[0]
	if m.screen != 0 {
		n = &m.keys[1]
	}
	switch {
	case c.prefix == '<':
		*n -= uint8(min(c.at(0, 1), int(*n)))
	case *n < maxKeys && (c.prefix == '>' || *n == 0):
		*n++
	}
}

// printable keeps what of a text can be shown, up to n bytes.
func printable(text []byte, n int) []byte {
	var b []byte
	for _, r := range string(text) {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			continue
		}
		if len(b)+utf8.RuneLen(r) > n {
			break
		}
		b = utf8.AppendRune(b, r)
	}
	return b
}
