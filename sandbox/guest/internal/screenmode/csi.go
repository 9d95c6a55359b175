package screenmode

// privateModes are those of CSI ? n h that are kept, in the order in which they
// are restored. The two screens are apart.
var privateModes = [...]uint16{
	1,          // cursor keys send application codes
	5,          // reverse video
	7,          // wrap at the margin
	12, 25, 45, // cursor blinks, cursor shows, wrap backwards
	66,                              // the keypad, like ESC =
	9, 1000, 1001, 1002, 1003, 1004, // the mouse, and the focus
	1005, 1006, 1007, 1015, 1016, // how the mouse is told
	1034, 1035, 1036, 1039, // how Alt and the lock keys are told
	2004, 2026, 2027, 2031, // pasting, synchronized output, width of clusters, colour schemes
	6, // positions count from the scroll region
}

// onAtFirst tells the modes that a new terminal has set.
func onAtFirst(mode uint16) bool {
	return mode == 7 || mode == 25 || mode == 1034 || mode == 1035 || mode == 1036
}

// isScreen tells the modes that switch to the other screen.
func isScreen(mode uint16) bool { return mode == 47 || mode == 1047 || mode == 1049 }

// private sets or resets one private mode.
func (s *Scanner) private(mode uint16, on bool) {
	if isScreen(mode) {
		s.screen = 0
		if on {
			s.screen = mode
		}
		return
	}
	for i, known := range privateModes {
		if known != mode {
			continue
		}
		if on != onAtFirst(mode) {
			s.changed |= 1 << i
		} else {
			s.changed &^= 1 << i
		}
	}
}

// endCSI obeys the control sequence that has come to its end.
func (s *Scanner) endCSI() {
	if s.long || s.n == 0 {
		return
	}
	body, final := s.seq[:s.n-1], s.seq[s.n-1]
	var prefix, between byte
	if len(body) > 0 && body[0] >= '<' && body[0] <= '?' {
		prefix, body = body[0], body[1:]
	}
	if n := len(body); n > 0 && body[n-1] >= 0x20 && body[n-1] < 0x30 {
		between, body = body[n-1], body[:n-1]
	}
	var params [maxSequence]uint16
	count, ok := numbers(params[:], body)
	if !ok {
		return
	}
	switch {
	case prefix == '?' && between == 0 && (final == 'h' || final == 'l'):
		for _, mode := range params[:count] {
			s.private(mode, final == 'h')
		}
	case prefix == '>' && between == 0 && final == 'm' && params[0] == 4:
		s.otherKeys = 0
		if count > 1 && params[1] <= 3 {
			s.otherKeys = byte(params[1])
		}
	case prefix != 0:
	case between == 0 && (final == 'h' || final == 'l'):
		for _, mode := range params[:count] {
			switch mode {
			case 4:
				s.insert = final == 'h'
			case 20:
				s.newline = final == 'h'
			}
		}
	case between == 0 && final == 'r':
		s.region(params[0], params[1])
	case between == ' ' && final == 'q' && params[0] <= 6:
		s.cursor = byte(params[0])
	case between == '!' && final == 'p':
		s.soften()
	}
}

// region sets the scroll region; one that is none is the whole screen.
func (s *Scanner) region(top, bottom uint16) {
	s.top, s.bottom = 0, 0
	if bottom > max(top, 1) || bottom == 0 && top > 1 {
		s.top, s.bottom = max(top, 1), bottom
	}
}

// soften is the soft reset.
func (s *Scanner) soften() {
	for _, mode := range []uint16{1, 6, 66} {
		s.private(mode, false)
	}
	s.private(7, true)
	s.private(25, true)
	s.insert, s.keypad, s.shift, s.cursor = false, false, 0, 0
	s.sets = [4]byte{}
	s.top, s.bottom = 0, 0
}

// numbers reads parameters; a missing one is 0. Those with parts, as colours
// have, are none of ours.
func numbers(to []uint16, text []byte) (count int, ok bool) {
	value := uint16(0)
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			if value > 6552 {
				value = 6552 // larger than all that are known, and stays so
			}
			value = value*10 + uint16(c-'0')
		case c == ';':
			to[count] = value
			count, value = count+1, 0
		default:
			return 0, false
		}
	}
	to[count] = value
	return count + 1, true
}
