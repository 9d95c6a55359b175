package screen

// moveTo moves the cursor to a line and a column, counted from 0.
func (s *Screen) moveTo(y, x int) {
	low, high := 0, s.rows-1
	if s.cur.origin {
		low, high = s.top, s.end-1
		y += s.top
	}
	s.cur.y = min(max(y, low), high)
	s.cur.x = min(max(x, 0), s.cols-1)
	s.cur.wrap = false
}

// moveBy moves the cursor; the margins of the scroll region stop it when it is
// between them.
func (s *Screen) moveBy(dy, dx int) {
	low, high := 0, s.rows-1
	if s.cur.y >= s.top {
		low = s.top
	}
	if s.cur.y < s.end {
		high = s.end - 1
	}
	if dy > 0 {
		low = 0
	} else {
		high = s.rows - 1
	}
	s.cur.y = min(max(s.cur.y+dy, low), high)
	s.cur.x = min(max(s.cur.x+dx, 0), s.cols-1)
	s.cur.wrap = false
}

// index moves the cursor down, and scrolls at the bottom margin.
func (s *Screen) index() {
	s.cur.wrap = false
	switch {
	case s.cur.y == s.end-1:
		s.scrollUp(s.top, 1)
	case s.cur.y < s.rows-1:
		s.cur.y++
	}
}

// reverseIndex moves the cursor up, and scrolls at the top margin.
func (s *Screen) reverseIndex() {
	s.cur.wrap = false
	switch {
	case s.cur.y == s.top:
		s.scrollDown(s.top, 1)
	case s.cur.y > 0:
		s.cur.y--
	}
}

// scrollUp takes n lines out at y; those below them in the region move up. What
// leaves the main screen at its top is kept for a while.
func (s *Screen) scrollUp(y, n int) {
	lines := s.page().lines
	n = min(n, s.end-y)
	s.spend(n*s.cols + s.end - y)
	for range n {
		gone := lines[y]
		copy(lines[y:s.end-1], lines[y+1:s.end])
		if s.alternate == 0 && y == 0 && s.top == 0 {
			gone = s.keep(gone)
		}
		s.fill(gone.cells)
		lines[s.end-1] = line{cells: gone.cells}
	}
}

// keep puts a line with those that have scrolled away, and returns one to use
// in its place.
func (s *Screen) keep(gone line) (free line) {
	if len(s.away) < scrollback {
		s.away = append(s.away, gone)
		return line{cells: make([]cell, s.cols)}
	}
	free = s.away[0]
	copy(s.away, s.away[1:])
	s.away[len(s.away)-1] = gone
	return free
}

// scrollDown puts n blank lines in at y; those below move down in the region,
// and out of it.
func (s *Screen) scrollDown(y, n int) {
	lines := s.page().lines
	n = min(n, s.end-y)
	s.spend(n*s.cols + s.end - y)
	for range n {
		gone := lines[s.end-1]
		copy(lines[y+1:s.end], lines[y:s.end-1])
		s.fill(gone.cells)
		lines[y] = line{cells: gone.cells}
	}
}

// fill blanks cells.
func (s *Screen) fill(cells []cell) {
	blank := s.blank()
	for i := range cells {
		cells[i] = blank
	}
}

// erase blanks a part of a line.
func (s *Screen) erase(y, from, to int) {
	row := &s.page().lines[y]
	from, to = max(from, 0), min(to, s.cols)
	if from >= to {
		return
	}
	s.spend(to - from)
	s.split(row.cells, from)
	s.split(row.cells, to)
	s.fill(row.cells[from:to])
	if to == s.cols {
		row.wrapped = false
	}
}

// eraseDisplay blanks what is below the cursor, above it, or all.
func (s *Screen) eraseDisplay(what int) {
	from, to := 0, s.rows
	switch what {
	case 0:
		s.erase(s.cur.y, s.cur.x, s.cols)
		from = s.cur.y + 1
	case 1:
		s.erase(s.cur.y, 0, s.cur.x+1)
		to = s.cur.y
	case 2:
	case 3:
		s.away = nil
		return
	default:
		return
	}
	for y := from; y < to; y++ {
		s.erase(y, 0, s.cols)
	}
	s.cur.wrap = false
}

// insertCells moves the rest of the line to the right of the cursor away.
func (s *Screen) insertCells(n int) {
	row := s.page().lines[s.cur.y].cells
	x := s.cur.x
	n = min(n, s.cols-x)
	s.spend(s.cols - x)
	s.split(row, x)
	copy(row[x+n:], row[x:])
	s.fill(row[x : x+n])
	// A wide character may have lost its rest at the margin.
	if last := &row[s.cols-1]; last.width == 2 {
		*last = cell{style: last.style}
	}
	s.cur.wrap = false
}

// deleteCells takes cells out at the cursor.
func (s *Screen) deleteCells(n int) {
	row := s.page().lines[s.cur.y].cells
	x := s.cur.x
	n = min(n, s.cols-x)
	s.spend(s.cols - x)
	s.split(row, x)
	s.split(row, x+n)
	copy(row[x:], row[x+n:])
	s.fill(row[s.cols-n:])
	s.cur.wrap = false
}

// tab moves the cursor n tab stops on, backwards when n is negative.
func (s *Screen) tab(n int) {
	step := 1
	if n < 0 {
		step, n = -1, -n
	}
	x := s.cur.x
	for range min(n, s.cols) {
		for x += step; x > 0 && x < s.cols-1 && !s.tabs[x]; x += step {
		}
		x = min(max(x, 0), s.cols-1)
	}
	s.cur.x = x
	if step < 0 {
		s.cur.wrap = false
	}
}

// repeat prints the last character again.
func (s *Screen) repeat(n int) {
	if s.last == 0 {
		return
	}
	n = min(n, s.rows*s.cols)
	s.spend(n)
	sets := s.cur.sets // the character is what it became then
	s.cur.sets = [4]byte{}
	r := s.last
	for range n {
		s.print(r)
	}
	s.cur.sets = sets
}

// switchTo switches to the main screen or the alternate one.
func (s *Screen) switchTo(mode uint16, on bool) {
	if on == s.Alternate() {
		if mode == 1049 && !on {
			s.restoreCursor()
		}
		return
	}
	if mode == 1049 && on {
		s.pages[0].saved = s.cur
	}
	s.alternate, s.entered = 0, 0
	if on {
		s.alternate, s.entered = 1, mode
		s.spend(s.rows * s.cols)
		for y := range s.pages[1].lines {
			s.fill(s.pages[1].lines[y].cells)
			s.pages[1].lines[y].wrapped = false
		}
	} else if mode == 1049 {
		s.restoreCursor()
	}
	s.cur.wrap = s.cur.wrap && s.cur.x == s.cols-1
}

// saveCursor and restoreCursor are DECSC and DECRC: each screen has its own.
func (s *Screen) saveCursor() { s.page().saved = s.cur }

func (s *Screen) restoreCursor() {
	s.cur = s.page().saved
	s.pen = s.styles[s.cur.style]
	if s.cur.origin {
		s.cur.y = min(max(s.cur.y, s.top), s.end-1)
	}
}
