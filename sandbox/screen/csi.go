package screen

// The methods of handler.
var _ handler = (*Screen)(nil)

// control obeys a control character.
func (s *Screen) control(c byte) {
	switch c {
	case '\b':
		s.moveBy(0, -1)
	case '\t':
		s.tab(1)
	case '\n', '\v', '\f':
		s.index()
		if s.modes.has(newLine) {
			s.cur.x = 0
		}
	case '\r':
		s.cur.x, s.cur.wrap = 0, false
	case 0x0e, 0x0f: // SO, SI
		s.cur.shift = 0x0f - c
	}
}

// escape obeys a short sequence.
func (s *Screen) escape(between, final byte) {
	switch between {
	case 0:
	case '(', ')', '*', '+':
		s.cur.sets[between-'('] = final
		return
	case '#':
		if final == '8' { // a screen full of E, to adjust a picture tube
			s.spend(s.rows * s.cols)
			for y := range s.page().lines {
				row := &s.page().lines[y]
				for x := range row.cells {
					row.cells[x] = cell{r: 'E', width: 1}
				}
				row.wrapped = false
			}
			s.top, s.end = 0, s.rows
			s.cur.origin = false
			s.moveTo(0, 0)
		}
		return
	default:
		return
	}
	switch final {
	case '7':
		s.saveCursor()
	case '8':
		s.restoreCursor()
	case 'D':
		s.index()
	case 'E':
		s.index()
		s.cur.x = 0
	case 'H':
		s.tabs[s.cur.x], s.tabsMoved = true, true
	case 'M':
		s.reverseIndex()
	case 'c':
		s.reset()
	case 'n':
		s.cur.shift = 2
	case 'o':
		s.cur.shift = 3
	case '=', '>':
		s.modes.set(keypad, final == '=')
	}
}

// csi obeys a control sequence. What asks for an answer is none of them.
func (s *Screen) csi(c *sequence) {
	switch {
	case c.between == 0 && c.prefix == 0:
		s.plain(c)
	case c.between == 0 && c.prefix == '?':
		switch c.final {
		case 'h', 'l':
			for _, mode := range c.params[:c.n] {
				s.private(mode, c.final == 'h')
			}
		case 'J':
			s.eraseDisplay(c.at(0, 0))
		case 'K':
			s.eraseLine(c.at(0, 0))
		case 'W':
			if c.at(0, 0) == 5 {
				s.resetTabs()
			}
		}
	case c.between == 0 && c.prefix == '>' && c.final == 'm' && c.at(0, 0) == 4:
		s.otherKeys = uint8(min(c.at(1, 0), 3))
	case c.between == 0 && c.final == 'u':
		s.kitty(c)
	case c.between == ' ' && c.prefix == 0 && c.final == 'q' && c.at(0, 0) <= 6:
		s.style = uint8(c.at(0, 0))
	case c.between == '!' && c.prefix == 0 && c.final == 'p':
		s.soften()
	}
}

// plain obeys the sequences of the standard.
func (s *Screen) plain(c *sequence) {
	n := c.at(0, 1)
	switch c.final {
	case '@':
		s.insertCells(n)
	case 'A':
		s.moveBy(-n, 0)
	case 'B', 'e':
		s.moveBy(n, 0)
	case 'C', 'a':
		s.moveBy(0, n)
	case 'D':
		s.moveBy(0, -n)
	case 'E':
		s.moveBy(n, -s.cols)
	case 'F':
		s.moveBy(-n, -s.cols)
	case 'G', '`':
		s.cur.x, s.cur.wrap = min(n, s.cols)-1, false
	case 'H', 'f':
		s.moveTo(n-1, c.at(1, 1)-1)
	case 'I':
		s.tab(n)
	case 'Z':
		s.tab(-n)
	case 'J':
		s.eraseDisplay(c.at(0, 0))
	case 'K':
		s.eraseLine(c.at(0, 0))
	case 'L', 'M':
		if s.cur.y < s.top || s.cur.y >= s.end {
			return
		}
		if c.final == 'L' {
			s.scrollDown(s.cur.y, n)
		} else {
			s.deleteLines(n)
		}
		s.cur.x, s.cur.wrap = 0, false
	case 'P':
		s.deleteCells(n)
	case 'S':
		s.scrollUp(s.top, n)
	case 'T':
		if c.n == 1 { // with more parameters it is about the mouse
			s.scrollDown(s.top, n)
		}
	case 'X':
		s.erase(s.cur.y, s.cur.x, s.cur.x+n)
		s.cur.wrap = false
	case 'b':
		s.repeat(n)
	case 'd':
		x := s.cur.x
		s.moveTo(n-1, x)
	case 'g':
		switch c.at(0, 0) {
		case 0:
			s.tabs[s.cur.x], s.tabsMoved = false, true
		case 3:
			clear(s.tabs)
			s.tabsMoved = true
		}
	case 'h', 'l':
		for _, mode := range c.params[:c.n] {
			switch mode {
			case 4:
				s.modes.set(insertMode, c.final == 'h')
			case 20:
				s.modes.set(newLine, c.final == 'h')
			}
		}
	case 'm':
		s.pen.sgr(c)
		s.cur.style = s.styleID()
	case 'r':
		s.region(c.at(0, 1), c.at(1, s.rows))
	case 's':
		if c.n == 1 && c.given == 0 { // with parameters it sets margins
			s.saveCursor()
		}
	case 'u':
		s.restoreCursor()
	}
}

// deleteLines takes lines out at the cursor; they are not kept, they were taken
// out on purpose.
func (s *Screen) deleteLines(n int) {
	away := s.away
	top := s.top
	if s.cur.y == 0 {
		s.top = -1 // so that they are not taken for scrolled away
	}
	s.scrollUp(s.cur.y, n)
	s.top, s.away = top, away
}

func (s *Screen) eraseLine(what int) {
	switch what {
	case 0:
		s.erase(s.cur.y, s.cur.x, s.cols)
	case 1:
		s.erase(s.cur.y, 0, s.cur.x+1)
	case 2:
		s.erase(s.cur.y, 0, s.cols)
	}
	s.cur.wrap = false
}

// region sets the scroll region, from line top to bottom, counted from 1.
func (s *Screen) region(top, bottom int) {
	bottom = min(bottom, s.rows)
	if top >= bottom {
		return
	}
	s.top, s.end = top-1, bottom
	s.moveTo(0, 0)
}

// private sets or resets a mode.
func (s *Screen) private(mode uint16, on bool) {
	switch mode {
	case 6:
		s.cur.origin = on
		s.moveTo(0, 0)
	case 47, 1047, 1049:
		s.switchTo(mode, on)
	case 1048:
		if on {
			s.saveCursor()
		} else {
			s.restoreCursor()
		}
	default:
		s.modes.private(mode, on)
	}
}

// maxKeys bounds the stack of keyboard flags.
const maxKeys = 16

// kitty obeys the sequences of the kitty keyboard protocol, and without a
// prefix restores the cursor.
func (s *Screen) kitty(c *sequence) {
	p := s.page()
	flags := uint16(c.at(0, 0)) & 31
	switch c.prefix {
	case '>':
		if len(p.keys) == maxKeys {
			p.keys = p.keys[1:]
		}
		p.keys = append(p.keys, flags)
	case '<':
		p.keys = p.keys[:len(p.keys)-min(c.at(0, 1), len(p.keys))]
	case '=':
		if len(p.keys) == 0 {
			p.keys = append(p.keys, 0)
		}
		last := &p.keys[len(p.keys)-1]
		switch c.at(1, 1) {
		case 1:
			*last = flags
		case 2:
			*last |= flags
		case 3:
			*last &^= flags
		}
	}
}

// soften is the soft reset.
func (s *Screen) soften() {
	for _, m := range []uint16{1} {
		s.modes.private(m, false)
	}
	s.modes.private(7, true)
	s.modes.private(25, true)
	s.modes.set(insertMode, false)
	s.modes.set(keypad, false)
	s.top, s.end = 0, s.rows
	s.pen = style{}
	y, x := s.cur.y, s.cur.x
	s.cur = cursor{y: y, x: x}
	s.page().saved = cursor{}
	s.style = 0
}

// maxTitle bounds a title.
const maxTitle = 256

// osc obeys a command: the title.
func (s *Screen) osc(text []byte) {
	if len(text) < 2 || text[1] != ';' || text[0] != '0' && text[0] != '2' {
		return
	}
	s.title, s.titled = printable(text[2:], maxTitle), true
}
