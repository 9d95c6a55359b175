package screen

import "unicode/utf8"

// Bounds of one sequence.
const (
	maxParams  = 32
	maxString  = 1 << 10 // of a title; longer ones are cut
	maxPending = 4 << 10 // of a sequence that is not complete yet
)

const (
	esc = 0x1b
	bel = 0x07
)

// state is what the parser is in the middle of.
type state uint8

const (
	ground     state = iota
	runeState        // a character of several bytes
	escState         // ESC was seen
	escBetween       // and intermediates
	csiState         // parameters of a control sequence
	csiBetween       // its intermediates
	csiIgnore        // a control sequence that is none
	oscState         // an operating system command
	strState         // a string of another kind, to its end
	strEsc           // ESC in a string
)

// handler obeys what a parser has read.
type handler interface {
	print(r rune)
	control(c byte)
	escape(between, final byte)
	csi(c *sequence)
	osc(text []byte)
}

// sequence is a control sequence.
type sequence struct {
	prefix, between, final byte
	params                 [maxParams]uint16
	given                  uint32 // bit i: parameter i is there
	part                   uint32 // bit i: parameter i belongs to the one before it, as in 38:2:…
	n                      int    // parameters
}

// at returns parameter i, or def when it is missing or zero.
func (s *sequence) at(i, def int) int {
	if i >= s.n || s.params[i] == 0 {
		return def
	}
	return int(s.params[i])
}

// parser reads the output of a program as a terminal does that expects UTF-8:
// bytes of the upper half are never controls.
type parser struct {
	state   state
	inOSC   bool // the string that strEsc is in is a command
	need    uint8
	have    uint8
	utf     [utf8.UTFMax]byte
	between byte
	seq     sequence
	str     []byte
}

// feed reads one byte.
func (p *parser) feed(h handler, c byte) {
	switch {
	case p.state == runeState:
		if c&0xc0 == 0x80 {
			p.utf[p.have] = c
			if p.have++; p.have == p.need {
				p.state = ground
				r, _ := utf8.DecodeRune(p.utf[:p.have])
				h.print(r)
			}
			return
		}
		p.state = ground
		h.print(utf8.RuneError)
	case p.state == oscState || p.state == strState || p.state == strEsc:
		p.text(h, c)
		return
	}
	switch {
	case c == esc:
		p.state, p.between = escState, 0
	case c == 0x18 || c == 0x1a: // CAN and SUB end whatever there is
		p.state = ground
	case c < 0x20:
		h.control(c)
	case c == 0x7f:
	default:
		p.visible(h, c)
	}
}

// visible reads a byte that is no control.
func (p *parser) visible(h handler, c byte) {
	switch p.state {
	case ground:
		switch {
		case c < utf8.RuneSelf:
			h.print(rune(c))
		case c >= 0xc2 && c < 0xf5:
			p.state, p.utf[0], p.have, p.need = runeState, c, 1, 2
			if c >= 0xe0 {
				p.need++
			}
			if c >= 0xf0 {
				p.need++
			}
		default:
			h.print(utf8.RuneError)
		}
	case escState, escBetween:
		p.escaped(h, c)
	case csiState, csiBetween, csiIgnore:
		p.sequence(h, c)
	}
}

// escaped reads what follows an ESC.
func (p *parser) escaped(h handler, c byte) {
	switch {
	case c >= 0x20 && c < 0x30:
		p.state, p.between = escBetween, c
	case c >= utf8.RuneSelf:
		p.state = ground
	case p.state == escState && c == '[':
		p.state, p.seq = csiState, sequence{n: 1}
	case p.state == escState && (c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_'):
		p.state, p.str = strState, p.str[:0]
		if c == ']' {
			p.state = oscState
		}
	default:
		p.state = ground
		h.escape(p.between, c)
	}
}

// sequence reads a byte of a control sequence.
func (p *parser) sequence(h handler, c byte) {
	s := &p.seq
	switch {
	case c >= 0x40 && c < 0x7f:
		ignored := p.state == csiIgnore
		p.state, s.final = ground, c
		if !ignored {
			h.csi(s)
		}
	case c >= utf8.RuneSelf || p.state == csiIgnore:
		p.state = csiIgnore
	case c < 0x30:
		p.state, s.between = csiBetween, c
	case p.state == csiBetween: // parameters come before intermediates
		p.state = csiIgnore
	case c <= '9':
		i := s.n - 1
		s.params[i] = uint16(min(uint32(s.params[i])*10+uint32(c-'0'), 0xffff))
		s.given |= 1 << i
	case c == ';' || c == ':':
		if s.n == maxParams {
			p.state = csiIgnore
			return
		}
		if c == ':' {
			s.part |= 1 << s.n
		}
		s.n++
	default: // one of <=>?
		if s.n > 1 || s.given != 0 || s.prefix != 0 {
			p.state = csiIgnore
		}
		s.prefix = c
	}
}

// text reads a byte of a string.
func (p *parser) text(h handler, c byte) {
	switch {
	case p.state == strEsc:
		// Whatever follows ESC ends the string; ST is nothing more.
		if p.inOSC && c == '\\' {
			h.osc(p.str)
		}
		p.state, p.between = escState, 0
		if c == '\\' {
			p.state = ground
			return
		}
		p.feed(h, c)
	case c == esc:
		p.inOSC = p.state == oscState
		p.state = strEsc
	case c == 0x18 || c == 0x1a:
		p.state = ground
	case c == bel && p.state == oscState:
		p.state = ground
		h.osc(p.str)
	case p.state == oscState && len(p.str) < maxString:
		p.str = append(p.str, c)
	}
}
