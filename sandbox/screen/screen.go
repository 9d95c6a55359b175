package screen

import (
	"github.com/clipperhouse/displaywidth"
)

// Bounds of a screen. A terminal that is larger is shown from its upper left
// corner.
const (
	maxSide    = 1000
	maxCells   = 1 << 16
	scrollback = 200 // lines that have scrolled away and are kept
	maxStyles  = 1 << 16
	maxMarks   = 1 << 12
	// maxWork is how many cells are touched before a screen gives up: what a
	// program draws takes a thousandth of that.
	maxWork = 100 << 20
)

// cell is one place on the screen.
type cell struct {
	r     rune   // 0: nothing was printed here
	style uint16 // into the screen's styles
	marks uint16 // combining characters, into the screen's marks
	width uint8  // 2 for a wide character, and then the next cell is its rest
	rest  bool
}

// line is one line. wrapped says that the next one is its continuation.
type line struct {
	cells   []cell
	wrapped bool
}

// cursor is where the next character goes, and how.
type cursor struct {
	x, y   int
	style  uint16
	wrap   bool    // the last column is taken: the next character wraps
	origin bool    // positions count from the scroll region
	sets   [4]byte // G0 to G3
	shift  uint8   // the set in use
}

// page is one of the two screens of a terminal.
type page struct {
	lines []line
	saved cursor
	keys  []uint16 // flags of the kitty keyboard protocol, the last one counts
}

// Screen is a terminal in memory.
type Screen struct {
	rows, cols int
	pages      [2]page // the main screen and the alternate one
	alternate  int     // 0 or 1
	entered    uint16  // the mode that has switched to it
	cur        cursor
	top, end   int // the scroll region, end is behind it
	tabs       []bool
	tabsMoved  bool
	away       []line // scrolled away from the main screen, the oldest first
	last       rune   // for repetition
	modes      modeSet
	title      []byte
	titled     bool
	otherKeys  uint8
	style      uint8 // of the cursor

	pen      style
	styles   []style
	styleIDs map[style]uint16
	marks    []string
	markIDs  map[string]uint16

	parser  parser
	pending []byte // the sequence that is not complete yet
	long    bool   // it is longer than pending may be
	work    int
	gaveUp  bool
}

// New returns a blank screen.
func New(rows, cols int) *Screen {
	rows, cols = min(max(rows, 1), maxSide), min(max(cols, 1), maxSide)
	if rows*cols > maxCells {
		rows = max(maxCells/cols, 1)
	}
	s := &Screen{rows: rows, cols: cols}
	s.reset()
	return s
}

// reset makes the terminal what it is when it is switched on.
func (s *Screen) reset() {
	s.spend(2 * s.rows * s.cols)
	for i := range s.pages {
		s.pages[i] = page{lines: make([]line, s.rows)}
		for y := range s.pages[i].lines {
			s.pages[i].lines[y].cells = make([]cell, s.cols)
		}
	}
	s.alternate, s.entered, s.cur = 0, 0, cursor{}
	s.top, s.end = 0, s.rows
	s.resetTabs()
	s.last, s.modes, s.title, s.titled, s.otherKeys, s.style = 0, 0, nil, false, 0, 0
	s.pen, s.styles, s.styleIDs = style{}, []style{{}}, map[style]uint16{{}: 0}
	s.marks, s.markIDs = []string{""}, map[string]uint16{}
	s.away = nil
}

func (s *Screen) resetTabs() {
	s.tabs, s.tabsMoved = make([]bool, s.cols), false
	for x := 8; x < s.cols; x += 8 {
		s.tabs[x] = true
	}
}

// spend counts work; a screen that has done too much does no more.
func (s *Screen) spend(cells int) { s.work += cells }

// Exhausted reports whether the output was so much work that the screen has
// given up on it. It is blank then.
func (s *Screen) Exhausted() bool { return s.work > maxWork }

// Alternate reports whether the alternate screen is in use, as by a program
// that uses all of the screen.
func (s *Screen) Alternate() bool { return s.alternate == 1 }

// Write takes output. It never fails.
func (s *Screen) Write(b []byte) (int, error) {
	for _, c := range b {
		if s.Exhausted() {
			s.giveUp()
			break
		}
		before := s.parser.state
		s.parser.feed(s, c)
		switch {
		case s.parser.state == ground:
			s.pending, s.long = s.pending[:0], false
		case before == ground, c == esc && s.parser.state == escState, c&0xc0 != 0x80 && s.parser.state == runeState:
			s.pending, s.long = append(s.pending[:0], c), false
		case c < 0x20 && c != esc && s.parser.state <= csiIgnore:
			// It was obeyed at once.
		case len(s.pending) < maxPending:
			s.pending = append(s.pending, c)
		default:
			s.long = true
		}
		s.work++
	}
	return len(b), nil
}

// giveUp blanks the screen, but keeps which one it is.
func (s *Screen) giveUp() {
	if s.gaveUp {
		return
	}
	s.gaveUp = true
	work, alternate, entered := s.work, s.alternate, s.entered
	s.reset()
	s.work, s.alternate, s.entered = work, alternate, entered
	s.parser = parser{}
	s.pending = nil
}

func (s *Screen) page() *page { return &s.pages[s.alternate] }

// styleID returns the number of the pen.
func (s *Screen) styleID() uint16 {
	id, ok := s.styleIDs[s.pen]
	if !ok && len(s.styles) < maxStyles {
		id = uint16(len(s.styles))
		s.styles = append(s.styles, s.pen)
		s.styleIDs[s.pen] = id
	}
	return id
}

// blank is what erasing leaves: the background stays.
func (s *Screen) blank() cell {
	y := s.styles[s.cur.style]
	if y.bg == 0 {
		return cell{}
	}
	pen := s.pen
	s.pen = style{bg: y.bg}
	id := s.styleID()
	s.pen = pen
	return cell{style: id}
}

// print prints a character.
func (s *Screen) print(r rune) {
	r = s.mapped(r)
	width := 1
	if r >= 0x80 {
		if r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return
		}
		width = min(displaywidth.Rune(r), 2)
	}
	if width == 0 {
		s.combine(r)
		return
	}
	if width > s.cols {
		return
	}
	c := &s.cur
	lines := s.page().lines
	if c.wrap && s.modes.has(autoWrap) {
		lines[c.y].wrapped = true
		s.index()
		c.x = 0
	} else if width == 2 && c.x == s.cols-1 {
		if !s.modes.has(autoWrap) {
			return
		}
		// It does not fit: the last column stays as it is.
		lines[c.y].wrapped = true
		s.index()
		c.x = 0
	}
	c.wrap = false
	if s.modes.has(insertMode) {
		s.insertCells(width)
	}
	row := lines[c.y].cells
	s.split(row, c.x)
	s.split(row, c.x+width)
	row[c.x] = cell{r: r, style: c.style, width: uint8(width)}
	if width == 2 {
		row[c.x+1] = cell{style: c.style, rest: true}
	}
	s.last = r
	if c.x += width; c.x >= s.cols {
		c.x = s.cols - 1
		c.wrap = true
	}
}

// split makes the halves of a wide character that is cut at x blank.
func (s *Screen) split(row []cell, x int) {
	if x > 0 && x < len(row) && row[x].rest {
		row[x-1] = cell{style: row[x-1].style}
		row[x] = cell{style: row[x].style}
	}
}

// combine adds a mark to the character before the cursor.
func (s *Screen) combine(r rune) {
	x := s.cur.x
	if !s.cur.wrap {
		x--
	}
	row := s.page().lines[s.cur.y].cells
	if x > 0 && row[x].rest {
		x--
	}
	if x < 0 || row[x].r == 0 {
		return
	}
	all := s.marks[row[x].marks] + string(r)
	if len(all) > 32 {
		return
	}
	id, ok := s.markIDs[all]
	if !ok {
		if len(s.marks) == maxMarks {
			return
		}
		id = uint16(len(s.marks))
		s.marks = append(s.marks, all)
		s.markIDs[all] = id
	}
	row[x].marks = id
}

// mapped is the character that the set in use has for r.
func (s *Screen) mapped(r rune) rune {
	set := s.cur.sets[s.cur.shift]
	if set == '0' && r >= '`' && r <= '~' {
		return drawing[r-'`']
	}
	if set == 'A' && r == '#' {
		return '£'
	}
	return r
}

// drawing are the line drawing characters.
var drawing = []rune("◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
