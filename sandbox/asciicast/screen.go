package asciicast

import (
	"bytes"
	"io"
	"strconv"
	"strings"
)

// Screen passes on to a terminal what another one has shown, and nothing but
// what is there to be seen: text, colours, the cursor, erasing, scrolling, the
// other screen. It is written anew of its meaning, never copied, and all it
// does not know is left out. So nothing that is printed can
//
//   - write or ask for the clipboard (OSC 52 and others), change the title,
//     colours or fonts, notify, name files or links: no OSC is passed on;
//   - make the terminal answer, which would type into whatever reads from it
//     next (DA, DSR, DECRQM, DECRQSS, XTVERSION, XTGETTCAP, DECREQTPARM,
//     window reports, ENQ, kitty's queries);
//   - make it send more than the keys that are pressed (mouse, focus, paste,
//     keyboard protocols), or other bytes for them;
//   - move or resize the window, print, define keys, transfer files, show
//     pictures (DCS, APC, PM, SOS);
//   - erase what was on the terminal before, beyond the screen itself.
type Screen struct {
	w    io.Writer
	buf  bytes.Buffer
	scan scanner
	alt  bool // the other screen is shown
}

// NewScreen returns a Screen on w.
func NewScreen(w io.Writer) *Screen {
	s := &Screen{w: w}
	s.scan.to = (*visible)(s)
	return s
}

// Show passes on what can be seen of text.
func (s *Screen) Show(text string) error {
	s.scan.scan(text)
	return s.flush()
}

// Clear makes the screen empty, as for something else that begins.
func (s *Screen) Clear() error {
	s.leave()
	s.buf.WriteString("\x1b[H\x1b[2J")
	return s.flush()
}

// Close leaves the terminal as a shell wants to find it.
func (s *Screen) Close() error {
	s.leave()
	return s.flush()
}

func (s *Screen) leave() {
	s.scan.enter(inText)
	if s.alt {
		s.buf.WriteString("\x1b[?1049l")
		s.alt = false
	}
	// Modes and margins, the cursor, colours, character sets.
	s.buf.WriteString("\x1b[!p\x1b[?7h\x1b[?25h\x1b[0 q\x1b[0m\x1b(B\x0f")
}

func (s *Screen) flush() error {
	if s.buf.Len() == 0 {
		return nil
	}
	_, err := s.w.Write(s.buf.Bytes())
	s.buf.Reset()
	return err
}

// visible is the interpreter of a Screen.
type visible Screen

func (v *visible) char(r rune) { v.buf.WriteRune(r) }

func (v *visible) control(c byte) {
	switch c {
	case ctlBell, '\b', '\t', '\n', '\v', '\f', '\r', 0x0e, 0x0f:
		v.buf.WriteByte(c)
	}
}

func (v *visible) escape(intermediate string, final byte) {
	switch {
	case intermediate == "" && strings.IndexByte("78DEM", final) >= 0,
		intermediate == "#" && strings.IndexByte("34568", final) >= 0,
		len(intermediate) == 1 && strings.Contains("()*+", intermediate) && strings.IndexByte("0AB", final) >= 0:
		v.buf.WriteByte(ctlEscape)
		v.buf.WriteString(intermediate)
		v.buf.WriteByte(final)
	case intermediate == "" && final == 'c': // everything anew: without the history
		(*Screen)(v).leave()
		v.buf.WriteString("\x1b[H\x1b[2J")
	}
}

// The private modes that only change what is seen: reverse video, origin,
// wrapping, the cursor and its blinking, the other screen, whole pictures at a
// time.
var seenModes = map[int]bool{5: true, 6: true, 7: true, 12: true, 25: true, 47: true, 1047: true, 1048: true, 1049: true, 2026: true}

func (v *visible) sequence(params string, final byte) {
	private, numbers, intermediate, ok := splitParams(params)
	if !ok {
		return
	}
	list, ok := parseNumbers(numbers)
	if !ok {
		return
	}
	switch {
	case private == "" && intermediate == "" && strings.IndexByte("@ABCDEFGILMPXZ`abdefmr", final) >= 0,
		private == "" && intermediate == "" && (final == 'H' || final == 'S'),
		private == "" && intermediate == "" && final == 'T' && len(list) <= 1,
		private == "" && intermediate == "" && (final == 's' || final == 'u') && numbers == "",
		private == "" && intermediate == "" && (final == 'h' || final == 'l') && numbers == "4",
		private == "" && intermediate == " " && final == 'q',
		private == "" && intermediate == "!" && final == 'p',
		(private == "" || private == "?") && intermediate == "" && final == 'K',
		(private == "" || private == "?") && intermediate == "" && final == 'J' && numbers != "3":
		v.buf.WriteString("\x1b[" + private + numbers + intermediate + string(final))
	case private == "?" && intermediate == "" && (final == 'h' || final == 'l'):
		for _, mode := range list {
			if !seenModes[mode] {
				continue
			}
			if mode == 47 || mode == 1047 || mode == 1049 {
				v.alt = final == 'h'
			}
			v.buf.WriteString("\x1b[?" + strconv.Itoa(mode) + string(final))
		}
	}
}

// splitParams takes apart what stands between CSI and the final byte.
func splitParams(s string) (private, numbers, intermediate string, ok bool) {
	if s != "" && s[0] >= '<' && s[0] <= '?' {
		private, s = s[:1], s[1:]
	}
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= ';' {
		end++
	}
	numbers, intermediate = s[:end], s[end:]
	return private, numbers, intermediate, strings.IndexFunc(intermediate, func(r rune) bool { return r >= '0' }) < 0
}

// parseNumbers reads the numbers of a sequence; one that is left out is 0. None
// is larger than a terminal has use for.
func parseNumbers(s string) ([]int, bool) {
	if s == "" {
		return nil, true
	}
	parts := strings.Split(strings.ReplaceAll(s, ":", ";"), ";")
	list := make([]int, len(parts))
	for i, part := range parts {
		if part == "" {
			continue
		}
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return nil, false
		}
		list[i] = int(n)
	}
	return list, true
}
