// Package screenmode follows what output makes of a terminal, without drawing
// anything: which modes are set, which keypad, character sets, scroll region,
// cursor shape and title. Whoever shows the later part of some output to a new
// terminal needs that of the earlier part.
//
// A [Scanner] has a fixed size, allocates nothing and reads each byte once, so
// that it can follow everything a process prints. What it tells is made from
// what it knows, never copied from what it read: [Clean] uses that to take what
// a stranger says of a terminal.
package screenmode

import "bytes"

// Bounds of what a Scanner keeps. Sequences that are longer are followed to
// their end and change nothing.
const (
	maxSequence = 64
	maxTitle    = 256
)

// The parts of a control sequence.
type state byte

const (
	ground    state = iota
	escape          // behind ESC
	charset         // behind ESC and one that designates a character set
	ignored         // in an escape sequence that means nothing here
	csi             // behind ESC [
	osc             // behind ESC ]
	str             // in another string: DCS, SOS, PM, APC
	oscEscape       // behind ESC in an OSC
	strEscape
)

const (
	bel = 0x07
	so  = 0x0e
	si  = 0x0f
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f
)

// Scanner follows output. The zero value is a terminal that has just been
// switched on. It may be copied.
type Scanner struct {
	state state
	into  byte // the character set that is being designated, or what opened a string
	long  bool // the sequence is longer than what seq can hold
	n     int  // bytes of the present sequence in seq
	seq   [maxTitle + 2]byte

	changed     uint64 // the private modes that differ from a new terminal's, by their place in privateModes
	screen      uint16 // the mode that has switched to the other screen; 0 when none has
	insert      bool
	newline     bool
	keypad      bool // sends application codes
	sets        [4]byte
	shift       byte // the set in use
	top, bottom uint16
	cursor      byte
	otherKeys   byte
	title       [maxTitle]byte
	titleLen    int
}

// Write takes the next piece of output. It never fails.
func (s *Scanner) Write(b []byte) {
	for len(b) > 0 {
		if s.state == ground {
			next := bytes.IndexByte(b, esc)
			if next < 0 {
				next = len(b)
			}
			s.shifts(b[:next])
			if next == len(b) {
				return
			}
			b = b[next+1:]
			s.state = escape
			continue
		}
		s.step(b[0])
		b = b[1:]
	}
}

// shifts looks for changes of the character set in what is no sequence.
func (s *Scanner) shifts(b []byte) {
	if bytes.IndexByte(b, so) < 0 && bytes.IndexByte(b, si) < 0 {
		return
	}
	for _, c := range b {
		s.shiftTo(c)
	}
}

func (s *Scanner) shiftTo(c byte) {
	switch c {
	case so:
		s.shift = 1
	case si:
		s.shift = 0
	}
}

// step takes one byte of a sequence.
func (s *Scanner) step(c byte) {
	switch {
	case c == can || c == sub:
		s.state = ground
	case s.state == osc || s.state == str:
		s.inString(c)
	case s.state == oscEscape || s.state == strEscape:
		if c == '\\' && s.state == oscEscape {
			s.endOSC()
		}
		if s.state = ground; c != '\\' {
			s.state = escape
			s.step(c) // the string was cut off by another sequence
		}
	case c == esc:
		s.state = escape
	case c < 0x20: // is obeyed in the middle of a sequence
		s.shiftTo(c)
	case c == del:
	case s.state == escape:
		s.begin(c)
	case s.state == charset:
		s.designate(c)
	case s.state == ignored:
		if c >= 0x30 {
			s.state = ground
		}
	case s.state == csi:
		if s.keep(c); c >= 0x40 {
			s.state = ground
			s.endCSI()
		}
	}
}

// begin takes the byte behind ESC.
func (s *Scanner) begin(c byte) {
	s.n, s.long, s.into = 0, false, c
	s.state = ground
	switch c {
	case '[':
		s.state = csi
	case ']':
		s.state = osc
	case 'P', 'X', '^', '_':
		s.state = str
	case '(', ')', '*', '+':
		s.into = c - '('
		s.state = charset
	case '=':
		s.keypad = true
	case '>':
		s.keypad = false
	case 'n':
		s.shift = 2
	case 'o':
		s.shift = 3
	case 'c':
		*s = Scanner{}
	default:
		if c < 0x30 {
			s.state = ignored
		}
	}
}

// designate takes the name of a character set. Those of two bytes are rare, and
// taken for none.
func (s *Scanner) designate(c byte) {
	if c < 0x30 {
		s.state = ignored
		return
	}
	if s.state = ground; c < del {
		s.sets[s.into] = c
	}
}

// keep collects the present sequence.
func (s *Scanner) keep(c byte) {
	limit := len(s.seq)
	if s.state == csi {
		limit = maxSequence
	}
	if s.n == limit {
		s.long = true
		return
	}
	s.seq[s.n] = c
	s.n++
}

func (s *Scanner) inString(c byte) {
	switch {
	case c == esc && s.state == osc:
		s.state = oscEscape
	case c == esc:
		s.state = strEscape
	case c == bel && s.state == osc:
		s.endOSC()
		s.state = ground
	case s.state == osc:
		s.keep(c)
	}
}

// endOSC takes the title from the string that has come to its end.
func (s *Scanner) endOSC() {
	if s.isTitle() {
		s.titleLen = printable(s.title[:], s.seq[2:s.n])
	}
}

// isTitle reports whether the present OSC sets the title.
func (s *Scanner) isTitle() bool {
	return s.n >= 2 && (s.seq[0] == '0' || s.seq[0] == '2') && s.seq[1] == ';'
}
