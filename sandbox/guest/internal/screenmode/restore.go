package screenmode

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Clean makes of control sequences that a stranger has written those that have
// the same effect on what a Scanner knows, and no other.
func Clean(text string) string {
	if text == "" {
		return ""
	}
	var s Scanner
	s.Write([]byte(text))
	return s.String()
}

// String is what makes a terminal that has just been switched on what the
// output has made of its own: control sequences, and at the end the beginning
// of the one in whose middle the output is.
func (s *Scanner) String() string {
	var b []byte
	if s.titleLen > 0 {
		b = append(b, "\x1b]2;"...)
		b = append(b, s.title[:s.titleLen]...)
		b = append(b, bel)
	}
	if s.screen != 0 {
		b = appendMode(b, s.screen, true)
	}
	for i, set := range s.sets {
		if set != 0 && set != 'B' {
			b = append(b, esc, '('+byte(i), set)
		}
	}
	switch s.shift {
	case 1:
		b = append(b, so)
	case 2:
		b = append(b, esc, 'n')
	case 3:
		b = append(b, esc, 'o')
	}
	if s.keypad {
		b = append(b, esc, '=')
	}
	if s.insert {
		b = append(b, "\x1b[4h"...)
	}
	if s.newline {
		b = append(b, "\x1b[20h"...)
	}
	if s.top != 0 {
		b = append(b, "\x1b["...)
		b = strconv.AppendUint(b, uint64(s.top), 10)
		if s.bottom != 0 {
			b = append(b, ';')
			b = strconv.AppendUint(b, uint64(s.bottom), 10)
		}
		b = append(b, 'r')
	}
	for i, mode := range privateModes {
		if s.changed&(1<<i) != 0 {
			b = appendMode(b, mode, !onAtFirst(mode))
		}
	}
	if s.otherKeys != 0 {
		b = append(b, "\x1b[>4;"...)
		b = append(b, '0'+s.otherKeys, 'm')
	}
	if s.cursor != 0 {
		b = append(b, "\x1b["...)
		b = append(b, '0'+s.cursor, ' ', 'q')
	}
	return string(s.appendPending(b))
}

func appendMode(b []byte, mode uint16, on bool) []byte {
	b = append(b, "\x1b[?"...)
	b = strconv.AppendUint(b, uint64(mode), 10)
	if on {
		return append(b, 'h')
	}
	return append(b, 'l')
}

// appendPending appends the beginning of the present sequence. Strings other
// than titles, which may be of any length, become one that shows nothing.
func (s *Scanner) appendPending(b []byte) []byte {
	switch s.state {
	case escape:
		b = append(b, esc)
	case charset:
		b = append(b, esc, '('+s.into)
	case ignored:
		b = append(b, esc, ' ')
	case csi:
		if !s.long {
			b = append(append(b, esc, '['), s.seq[:s.n]...)
		}
	case osc, oscEscape:
		b = append(b, esc, ']')
		switch {
		case s.n == 0:
		case s.n == 1 && (s.seq[0] == '0' || s.seq[0] == '2'):
			b = append(b, '2')
		case s.isTitle():
			var title [maxTitle]byte
			b = append(b, "2;"...)
			b = append(b, title[:printable(title[:], s.seq[2:s.n])]...)
		default:
			b = append(b, "9999;"...) // which no terminal knows
		}
		if s.state == oscEscape {
			b = append(b, esc)
		}
	case str:
		b = append(b, esc, '_')
	case strEscape:
		b = append(b, esc, '_', esc)
	}
	return b
}

// printable copies the printable characters of text and returns how many bytes
// they are.
func printable(to, text []byte) (n int) {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if (r != utf8.RuneError || size > 1) && unicode.IsPrint(r) && n+size <= len(to) {
			n += copy(to[n:], text[:size])
		}
		text = text[size:]
	}
	return n
}
