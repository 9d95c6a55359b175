package screen

import "strconv"

// Redraw returns what shows the screen on a terminal of rows times cols whose
// modes nobody has touched, and puts it in the same modes. What was on it is
// scrolled away. The output can go on right behind it.
//
// On a terminal of the same size every character is in its place. On another
// one the lines of the main screen are as they would be had they been printed
// there, with the cursor where it belongs; the alternate screen is cut, and its
// program has to draw itself anew when it learns of the size.
func (s *Screen) Redraw(rows, cols int) []byte {
	d := canvas{s: s, rows: min(max(rows, 1), maxSide), cols: min(max(cols, 1), maxSide)}
	d.same = d.rows == s.rows && d.cols == s.cols
	d.b = append(d.b, "\x1b[?25l\x1b[0m\x1b["...)
	d.number(d.rows)
	d.b = append(d.b, ";1H"...)
	for range d.rows {
		d.b = append(d.b, '\n')
	}
	d.b = append(d.b, "\x1b[H"...)
	if s.titled {
		d.b = append(d.b, "\x1b]2;"...)
		d.b = append(d.b, s.title...)
		d.b = append(d.b, bel)
	}
	if s.alternate == 0 {
		y, x := d.main(s.cur)
		d.finish(&s.pages[0], y, x)
		return d.end()
	}
	saved := s.pages[0].saved
	y, x := d.main(saved)
	d.keys(&s.pages[0])
	d.place(y, x, saved)
	d.b = appendPrivate(d.b, s.entered, true)
	d.alternate()
	d.finish(&s.pages[1], min(s.cur.y, d.rows-1), min(s.cur.x, d.cols-1))
	return d.end()
}

// canvas is a redraw under way.
type canvas struct {
	s          *Screen
	b          []byte
	rows, cols int // of the terminal that is drawn on
	same       bool
	style      uint16 // in use there, and what follows too
	sets       [4]byte
	shift      uint8
}

func (d *canvas) number(n int) { d.b = strconv.AppendInt(d.b, int64(n), 10) }

// goTo moves to a place that is counted from 0.
func (d *canvas) goTo(y, x int) {
	d.b = append(d.b, "\x1b["...)
	d.number(y + 1)
	d.b = append(d.b, ';')
	d.number(x + 1)
	d.b = append(d.b, 'H')
}

// pen changes to a style.
func (d *canvas) pen(style uint16) {
	if style != d.style {
		d.style = style
		d.b = d.s.styles[style].append(d.b)
	}
}

// cells draws cells.
func (d *canvas) cells(cells []cell) {
	for _, c := range cells {
		if c.rest {
			continue
		}
		d.pen(c.style)
		if c.r == 0 {
			d.b = append(d.b, ' ')
			continue
		}
		d.b = append(d.b, string(c.r)...)
		d.b = append(d.b, d.s.marks[c.marks]...)
	}
}

// used is how many cells of a line show anything.
func used(cells []cell) int {
	n := len(cells)
	for n > 0 && cells[n-1] == (cell{}) {
		n--
	}
	return n
}

// main draws the lines of the main screen and those that have scrolled away,
// and returns where its cursor is then.
func (d *canvas) main(cur cursor) (y, x int) {
	s := d.s
	page := s.pages[0].lines
	last := len(page) - 1
	if !d.same {
		for last > cur.y && used(page[last].cells) == 0 {
			last--
		}
	}
	lines := append(append([]line(nil), s.away...), page[:last+1]...)
	var at flow
	at.cols = d.cols
	into := false
	for i, l := range lines {
		n := used(l.cells)
		joined := l.wrapped && i < len(lines)-1 && used(lines[i+1].cells) > 0
		if joined {
			n = len(l.cells) // up to where it went on
			if l.cells[n-1] == (cell{}) && lines[i+1].cells[0].width == 2 {
				n-- // a wide character did not fit
			}
		}
		d.cells(l.cells[:n])
		if into && d.same && n < d.cols {
			// A line that is wrapped into may have been given the background
			// of its first character.
			d.pen(0)
			d.b = append(d.b, "\x1b[K"...)
		}
		into = joined
		for column, c := range l.cells {
			if i == len(s.away)+cur.y && column == cur.x {
				if y, x = at.next(); c.rest {
					y, x = at.row, at.column-1
				}
			}
			if column < n && !c.rest {
				at.take(max(int(c.width), 1))
			} else if column >= n && i == len(s.away)+cur.y && column < cur.x {
				at.take(1) // to where the cursor is, in what is blank
			}
		}
		if joined {
			continue
		}
		if i < len(lines)-1 {
			d.pen(0) // or the new line gets the background
			d.b = append(d.b, "\r\n"...)
			at.row, at.column = at.row+1, 0
		}
	}
	d.pen(0)
	if d.same { // each line is a row, and the cursor may wait at the margin
		y, x, at.row = len(s.away)+cur.y, cur.x, len(lines)-1
	}
	return min(max(y-max(at.row-d.rows+1, 0), 0), d.rows-1), x
}

// flow follows where printed text goes on a terminal without a lower end.
type flow struct{ cols, row, column int }

// take prints a character.
func (f *flow) take(width int) {
	if f.column+width > f.cols {
		f.row, f.column = f.row+1, 0
	}
	f.column += width
}

// next is where the next character goes, when it is not at the margin.
func (f *flow) next() (row, column int) {
	if f.column == f.cols {
		return f.row + 1, 0
	}
	return f.row, f.column
}

// alternate draws the alternate screen.
func (d *canvas) alternate() {
	s := d.s
	d.charsets(cursor{})
	d.pen(0) // or erasing leaves the background
	d.b = append(d.b, "\x1b[?7l\x1b[2J"...)
	for y := range min(s.rows, d.rows) {
		cells := s.pages[1].lines[y].cells
		n := min(used(cells), d.cols)
		if n < len(cells) && n > 0 && cells[n-1].width == 2 {
			n-- // it would be cut
		}
		if n == 0 {
			continue
		}
		d.goTo(y, 0)
		d.cells(cells[:n])
	}
	d.pen(0)
	d.b = append(d.b, "\x1b[?7h"...)
}

// keys restores the flags of the keyboard.
func (d *canvas) keys(p *page) {
	for _, flags := range p.keys {
		d.b = append(d.b, "\x1b[>"...)
		d.number(int(flags))
		d.b = append(d.b, 'u')
	}
}

// place puts the cursor somewhere, with all that belongs to it.
func (d *canvas) place(y, x int, c cursor) {
	d.charsets(c)
	d.goTo(y, x)
	d.pen(c.style)
}

// charsets changes to the character sets of a cursor.
func (d *canvas) charsets(c cursor) {
	for i, set := range c.sets {
		if set < 0x30 || set >= 0x7f {
			set = 'B'
		}
		if d.sets[i] == 0 {
			d.sets[i] = 'B'
		}
		if set != d.sets[i] {
			d.b = append(d.b, esc, '('+byte(i), set)
			d.sets[i] = set
		}
	}
	if c.shift == d.shift {
		return
	}
	d.shift = c.shift
	switch c.shift {
	case 0:
		d.b = append(d.b, 0x0f)
	case 1:
		d.b = append(d.b, 0x0e)
	case 2:
		d.b = append(d.b, "\x1bn"...)
	case 3:
		d.b = append(d.b, "\x1bo"...)
	}
}

// finish sets the modes and puts the cursor where it is.
func (d *canvas) finish(p *page, y, x int) {
	s := d.s
	saved := p.saved
	d.place(min(saved.y, d.rows-1), min(saved.x, d.cols-1), saved)
	d.b = append(d.b, "\x1b7"...)
	if s.tabsMoved && d.same {
		d.b = append(d.b, "\x1b[3g"...)
		for col, set := range s.tabs {
			if set {
				d.goTo(0, col)
				d.b = append(d.b, "\x1bH"...)
			}
		}
	}
	d.keys(p)
	if s.otherKeys != 0 {
		d.b = append(d.b, "\x1b[>4;"...)
		d.number(int(s.otherKeys))
		d.b = append(d.b, 'm')
	}
	if s.style != 0 {
		d.b = append(d.b, "\x1b["...)
		d.number(int(s.style))
		d.b = append(d.b, " q"...)
	}
	if d.same {
		if s.top != 0 || s.end != s.rows {
			d.b = append(d.b, "\x1b["...)
			d.number(s.top + 1)
			d.b = append(d.b, ';')
			d.number(s.end)
			d.b = append(d.b, 'r')
		}
		if s.cur.origin {
			d.b = append(d.b, "\x1b[?6h"...)
			y -= s.top
		}
	}
	if s.cur.wrap && d.same {
		// Printing the last character again is what makes the next one wrap.
		cells := p.lines[s.cur.y].cells
		from := s.cols - 1
		if cells[from].rest && from > 0 {
			from--
		}
		d.charsets(cursor{})
		d.goTo(y, from)
		d.cells(cells[from:])
	} else {
		d.goTo(y, x)
	}
	visible := s.modes.has(showCursor)
	modes := s.modes
	modes.set(showCursor, false) // it is hidden now
	d.b = modes.append(d.b, false)
	d.charsets(s.cur)
	d.pen(s.cur.style)
	if visible {
		d.b = append(d.b, "\x1b[?25h"...)
	}
}

// end adds the beginning of the sequence that the output is in the middle of.
func (d *canvas) end() []byte {
	if !d.s.long {
		d.b = append(d.b, d.s.pending...)
	}
	return d.b
}
