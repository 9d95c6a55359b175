package asciicast

import (
	"io"
	"strings"
)

// plain makes lines of text of what a terminal shows. It knows one line, the
// one with the cursor, which a program may edit, as a shell does while somebody
// types; going elsewhere on the screen begins another one. A character is one
// column wide.
type plain struct {
	w    io.Writer
	err  error
	scan scanner
	line []rune
	col  int
}

// maxColumns bounds a line.
const maxColumns = 4096

func (p *plain) write(text string) error {
	p.scan.to = p
	p.scan.scan(text)
	return p.err
}

// end writes the line that was begun last.
func (p *plain) end() error {
	p.elsewhere()
	return p.err
}

// newline writes the line.
func (p *plain) newline() {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, strings.TrimRight(string(p.line), " ")+"\n")
	}
	p.line, p.col = p.line[:0], 0
}

// elsewhere writes the line, if there is something in it.
func (p *plain) elsewhere() {
	if strings.TrimSpace(string(p.line)) != "" {
		p.newline()
	}
	p.line, p.col = p.line[:0], 0
}

func (p *plain) char(r rune) {
	if p.col >= maxColumns {
		p.newline()
	}
	p.pad(p.col)
	if p.col < len(p.line) {
		p.line[p.col] = r
	} else {
		p.line = append(p.line, r)
	}
	p.col++
}

// pad makes the line at least n columns wide.
func (p *plain) pad(n int) {
	for len(p.line) < n {
		p.line = append(p.line, ' ')
	}
}

// move goes to a column.
func (p *plain) move(col int) { p.col = min(max(col, 0), maxColumns-1) }

func (p *plain) control(c byte) {
	switch c {
	case '\n', '\v', '\f':
		p.newline()
	case '\r':
		p.col = 0
	case '\b':
		p.move(p.col - 1)
	case '\t':
		p.move(p.col&^7 + 8)
	}
}

func (p *plain) escape(intermediate string, final byte) {
	if intermediate == "" && strings.IndexByte("DEMc", final) >= 0 {
		p.elsewhere()
	}
}

func (p *plain) sequence(params string, final byte) {
	private, numbers, intermediate, ok := splitParams(params)
	list, valid := parseNumbers(numbers)
	if !ok || !valid || private != "" || intermediate != "" {
		return
	}
	first := 0
	if len(list) > 0 {
		first = list[0]
	}
	n := max(first, 1)
	switch final {
	case 'C', 'a':
		p.move(p.col + n)
	case 'D':
		p.move(p.col - n)
	case 'G', '`':
		p.move(n - 1)
	case '@':
		p.pad(p.col)
		blank := []rune(strings.Repeat(" ", min(n, maxColumns-len(p.line))))
		p.line = append(p.line[:p.col:p.col], append(blank, p.line[p.col:]...)...)
	case 'P':
		if p.col < len(p.line) {
			p.line = append(p.line[:p.col], p.line[min(p.col+n, len(p.line)):]...)
		}
	case 'X':
		p.erase(p.col, p.col+n)
	case 'K', 'J':
		switch {
		case first == 0 && p.col < len(p.line):
			p.line = p.line[:p.col]
		case first == 1:
			p.erase(0, p.col+1)
		case first >= 2 && final == 'K':
			p.line = p.line[:0]
		case first >= 2:
			p.elsewhere()
		}
	case 'A', 'B', 'E', 'F', 'H', 'f', 'd', 'e', 'S', 'T', 'L', 'M':
		p.elsewhere()
	}
}

// erase makes columns blank.
func (p *plain) erase(from, to int) {
	for i := from; i < min(to, len(p.line)); i++ {
		p.line[i] = ' '
	}
}
