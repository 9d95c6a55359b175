package asciicast

// scanner takes the output of a terminal apart: characters, control
// characters, escape sequences, control sequences. Strings (titles, clipboard,
// pictures) are swallowed. What it holds is bounded.
//
// Terminals differ in how they read what is malformed. That does not matter
// here: nobody passes the original on.
type scanner struct {
	to    interpreter
	state scanState
	seq   []byte // parameters and intermediate bytes
	long  bool   // the sequence does not fit seq
}

// interpreter is told what a scanner finds.
type interpreter interface {
	char(r rune)
	control(c byte)
	// escape is ESC, intermediate bytes, and a final one.
	escape(intermediate string, final byte)
	// sequence is CSI, parameters and intermediate bytes, and a final one.
	sequence(params string, final byte)
}

type scanState int

const (
	inText scanState = iota
	inEscape
	inSequence
	inString
	inStringEscape // an ESC that may end the string
)

const (
	ctlBell   = 0x07
	ctlCancel = 0x18
	ctlSub    = 0x1a
	ctlEscape = 0x1b
	ctlDelete = 0x7f

	c1DCS = 0x90
	c1SOS = 0x98
	c1CSI = 0x9b
	c1ST  = 0x9c
	c1OSC = 0x9d
	c1PM  = 0x9e
	c1APC = 0x9f
)

// maxSequence is longer than any sequence that means something.
const maxSequence = 128

func (s *scanner) scan(text string) {
	for _, r := range text {
		s.rune(r)
	}
}

func (s *scanner) rune(r rune) {
	switch {
	case r == ctlCancel || r == ctlSub:
		s.state = inText
		return
	case r == ctlEscape && (s.state == inString || s.state == inStringEscape):
		s.state = inStringEscape
		return
	case r == ctlEscape:
		s.enter(inEscape)
		return
	}
	if s.state == inStringEscape {
		if s.enter(inEscape); r == '\\' {
			s.state = inText
			return
		}
	}
	switch s.state {
	case inString:
		if r == ctlBell || r == c1ST {
			s.state = inText
		}
		return
	case inText, inEscape, inSequence:
		if r < ' ' {
			s.to.control(byte(r))
			return
		}
	}
	switch r {
	case ctlDelete:
		return
	case c1CSI:
		s.enter(inSequence)
		return
	case c1DCS, c1SOS, c1OSC, c1PM, c1APC:
		s.enter(inString)
		return
	}
	switch {
	case r > ctlDelete && r < 0xa0: // other controls of C1
		s.state = inText
	case s.state == inText || r > ctlDelete:
		s.state = inText
		s.to.char(r)
	case r <= '/' || s.state == inSequence && r <= '?':
		if s.long = s.long || len(s.seq) == maxSequence; !s.long {
			s.seq = append(s.seq, byte(r))
		}
	default:
		s.final(byte(r))
	}
}

// final ends a sequence.
func (s *scanner) final(c byte) {
	was := s.state
	s.state = inText
	if was == inEscape && len(s.seq) == 0 {
		switch c {
		case '[':
			s.enter(inSequence)
			return
		case ']', 'P', 'X', '^', '_', 'k': // the last is the title of screen and tmux
			s.enter(inString)
			return
		}
	}
	switch {
	case s.long:
	case was == inEscape:
		s.to.escape(string(s.seq), c)
	default:
		s.to.sequence(string(s.seq), c)
	}
}

func (s *scanner) enter(state scanState) {
	s.state, s.seq, s.long = state, s.seq[:0], false
}
