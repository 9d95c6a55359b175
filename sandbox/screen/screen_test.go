package screen

import (
	"fmt"
	"strings"
	"testing"
)

// text is what the lines show, without blanks at their ends.
func (s *Screen) text() string {
	var lines []string
	for _, l := range s.page().lines {
		var b strings.Builder
		for _, c := range l.cells {
			switch {
			case c.rest:
			case c.r == 0:
				b.WriteByte(' ')
			default:
				b.WriteRune(c.r)
				b.WriteString(s.marks[c.marks])
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func shown(rows, cols int, input string) *Screen {
	s := New(rows, cols)
	_, _ = s.Write([]byte(input))
	return s
}

// What a terminal of 4 lines and 8 columns shows, and where its cursor is.
func TestScreen(t *testing.T) {
	for _, c := range []struct {
		name, input, want string
		y, x              int
	}{
		{"text", "one\r\ntwo", "one\ntwo", 1, 3},
		{"wraps when the next comes", "12345678", "12345678", 0, 7},
		{"wrapped", "123456789", "12345678\n9", 1, 1},
		{"no wrap", "\x1b[?7l123456789", "12345679", 0, 7},
		{"scrolls", "1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5", 3, 1},
		{"backspace at the margin", "12345678\bx", "123456x8", 0, 7},
		{"tab", "a\tb", "a      b", 0, 7},
		{"position", "\x1b[2;3Hx\x1b[Hy", "y\n  x", 0, 1},
		{"beyond", "\x1b[99;99Hx", "\n\n\n       x", 3, 7},
		{"region scrolls alone", "a\r\nb\r\nc\r\nd\x1b[2;3r\x1b[3;1H\nx", "a\nc\nx\nd", 2, 1},
		{"a region beyond the screen", "\x1b[1;999r\x1b[4;1H\nx", "\n\n\nx", 3, 1},
		{"reverse index", "a\r\nb\x1b[H\x1bMx", "x\na\nb", 0, 1},
		{"insert line", "a\r\nb\x1b[1;1H\x1b[Lx", "x\na\nb", 0, 1},
		{"delete line", "a\r\nb\r\nc\x1b[1;1H\x1b[M", "b\nc", 0, 0},
		{"insert and delete cells", "abcdef\x1b[1;2H\x1b[2@\x1b[1;7H\x1b[P", "a  bcdf", 0, 6},
		{"insert mode", "abc\x1b[1;1H\x1b[4hXY", "XYabc", 0, 2},
		{"erase cells", "abcdef\x1b[1;2H\x1b[3X", "a   ef", 0, 1},
		{"erase line", "abcdef\x1b[1;3H\x1b[K", "ab", 0, 2},
		{"erase to the left", "abcdef\x1b[1;3H\x1b[1K", "   def", 0, 2},
		{"erase below", "a\r\nb\r\nc\x1b[2;1H\x1b[J", "a", 1, 0},
		{"repeat", "ab\x1b[3b", "abbbb", 0, 5},
		{"save and restore", "ab\x1b7\x1b[3;3Hx\x1b8c", "abc\n\n  x", 0, 3},
		{"save and restore, the other way", "ab\x1b[s\x1b[3;3Hx\x1b[uc", "abc\n\n  x", 0, 3},
		{"wide", "日本語", "日本語", 0, 6},
		{"wide at the margin", "1234567日", "1234567\n日", 1, 2},
		{"wide up to the margin", "123456日x", "123456日\nx", 1, 1},
		{"half of a wide one overwritten", "日本\x1b[1;2Hx", " x本", 0, 2},
		{"combining", "e\u0301x", "e\u0301x", 0, 2},
		{"combining at the margin", "1234567e\u0301", "1234567e\u0301", 0, 7},
		{"line drawing", "\x1b(0lqk\x1b(Bq", "┌─┐q", 0, 4},
		{"line drawing shifted in", "\x1b)0\x0eq\x0fq", "─q", 0, 2},
		{"alternate", "main\x1b[?1049halt", "    alt", 0, 7},
		{"and back", "main\x1b[?1049halt\x1b[?1049lx", "mainx", 0, 5},
		{"origin", "\x1b[2;3r\x1b[?6h\x1b[Hx\x1b[9;1Hy", "\nx\ny", 2, 1},
		{"title and other strings", "\x1b]0;x\x07a\x1bPqwe\x1b\\b\x1b_zzz\x1b\\c", "abc", 0, 3},
		{"questions", "\x1b[c\x1b[6n\x1b[5n\x1b[>c\x1b]11;?\x07\x1b[?u\x1bZ\x05a", "a", 0, 1},
		{"broken UTF-8", "a\xe2\x82b\xffc\x9bd", "a\ufffdb\ufffdc\ufffdd", 0, 7},
		{"an escape in a character", "\xe2\x1b[2Cx", "\ufffd  x", 0, 4},
		{"bytes of the upper half are no controls", "\x9b31m", "\ufffd31m", 0, 4},
		{"reset", "abc\x1b[31m\x1b[?1049h\x1bcx", "x", 0, 1},
		{"too many parameters", "\x1b[" + strings.Repeat("1;", 100) + "mx", "x", 0, 1},
		{"a number that is too large", "\x1b[99999999999999999999Cx", "       x", 0, 7},
		{"erased with scrollback", "a\r\nb\x1b[2J\x1b[3Jx", "\n x", 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := shown(4, 8, c.input)
			if got := s.text(); got != c.want || s.cur.y != c.y || s.cur.x != c.x {
				t.Errorf("shows %q, cursor %d,%d; want %q, %d,%d", got, s.cur.y, s.cur.x, c.want, c.y, c.x)
			}
		})
	}
}

// alike compares two screens in everything that can be seen or that what
// follows could tell.
func alike(a, b *Screen) error {
	if a.alternate != b.alternate || a.entered != b.entered {
		return fmt.Errorf("screen %d (%d) and %d (%d)", a.alternate, a.entered, b.alternate, b.entered)
	}
	look := func(s *Screen, c cell) string {
		if c.r == ' ' {
			c.r = 0
		}
		return fmt.Sprintf("%q %q %v %v", c.r, s.marks[c.marks], c.rest, s.styles[c.style])
	}
	cursorOf := func(s *Screen, c cursor) string {
		for i := range c.sets {
			if c.sets[i] == 'B' {
				c.sets[i] = 0
			}
		}
		return fmt.Sprintf("%d,%d wrap %v origin %v sets %v shift %d %v", c.y, c.x, c.wrap, c.origin, c.sets, c.shift, s.styles[c.style])
	}
	for p := range a.pages[:a.alternate+1] {
		for y, l := range a.pages[p].lines {
			for x, c := range l.cells {
				if one, other := look(a, c), look(b, b.pages[p].lines[y].cells[x]); one != other {
					return fmt.Errorf("page %d, line %d, column %d: %s and %s", p, y, x, one, other)
				}
			}
		}
	}
	if x, y := cursorOf(a, a.cur), cursorOf(b, b.cur); x != y {
		return fmt.Errorf("cursor %s and %s", x, y)
	}
	if a.modes != b.modes || a.otherKeys != b.otherKeys || a.style != b.style || a.top != b.top || a.end != b.end {
		return fmt.Errorf("modes %b %d %d %d-%d and %b %d %d %d-%d", a.modes, a.otherKeys, a.style, a.top, a.end, b.modes, b.otherKeys, b.style, b.top, b.end)
	}
	if fmt.Sprint(a.page().keys) != fmt.Sprint(b.page().keys) || a.titled && string(a.title) != string(b.title) || fmt.Sprint(a.tabs) != fmt.Sprint(b.tabs) {
		return fmt.Errorf("keys %v, title %q and %v, %q", a.page().keys, a.title, b.page().keys, b.title)
	}
	return nil
}

// What is redrawn is what was there, on a terminal that shows something else.
func TestRedraw(t *testing.T) {
	const size = "\x1b[4;1H"
	for _, input := range []string{
		"", "one\r\ntwo", "12345678", "123456789abcdefgh", "1\r\n2\r\n3\r\n4\r\n5\r\n6",
		"\x1b[31;1mred\x1b[44m on blue\x1b[K\x1b[0m\r\n\x1b[38;5;200mx\x1b[48;2;1;2;3my\x1b[4:3m\x1b[58:2::9:8:7mz\x1b[7;9;53;2;3;5;8mw",
		"日本語日", "e\u0301e\u0302\u0303", "1234567日x",
		"\x1b[?1049h\x1b[2;3Halt\x1b[?25l\x1b[?1000;1006h", "main\r\nx\x1b[?1047h12345678", "\x1b[31mx\x1b[?47h\x1b[32my",
		"\x1b[?1049h" + strings.Repeat("x", 32),
		"\x1b[2;3r\x1b[?6h\x1b[2;4H", "\x1b[2;3r" + size + "x", "\x1b[4h\x1b[20hab", "\x1b[?7l\x1b[?1h\x1b=\x1b[?2004h",
		"\x1b(0q", "\x1b)0\x0eq", "\x1b[>1u\x1b[>5u\x1b[>4;2m\x1b[5 q", "\x1b]2;a title\x07", "\x1b[3g\x1b[1;4H\x1bH",
		"ab\x1b7\x1b[3;3H\x1b[35m", "\x1b[1;8Hx", "\x1b[41mx\x1b[2;1H\x1b[0my", "\x1b[41m\x1b[2J",
		"\x1b[?5h\x1b[?1004h\x1b[?1002h\x1b[?2031h", "a\r\n\r\n\r\n\r\n\r\n\x1b[H",
	} {
		a := shown(4, 8, input)
		b := shown(4, 8, "something\r\nelse")
		_, _ = b.Write(a.Redraw(4, 8))
		if err := alike(a, b); err != nil {
			t.Errorf("%q, redrawn as %q: %v", input, a.Redraw(4, 8), err)
			continue
		}
		// What comes next has the same effect on both, a wrap for one.
		for _, s := range []*Screen{a, b} {
			_, _ = s.Write([]byte("xy\n\x1b8z"))
		}
		if err := alike(a, b); err != nil {
			t.Errorf("%q: after that: %v", input, err)
		}
	}
}

// Lines that have scrolled away come back before the others.
func TestScrollback(t *testing.T) {
	a := shown(3, 10, "1\r\n2\r\n3\r\n4\r\n5\r\n6")
	b := shown(3, 10, "")
	_, _ = b.Write(a.Redraw(3, 10))
	var lines []string
	for _, l := range b.away {
		lines = append(lines, strings.TrimSpace(string(l.cells[0].r)))
	}
	if got := strings.Join(lines, ""); !strings.HasSuffix(got, "123") {
		t.Errorf("scrolled away: %q", got)
	}
	for range 1000 {
		_, _ = a.Write([]byte("line\r\n"))
	}
	if len(a.away) != scrollback {
		t.Errorf("%d lines are kept", len(a.away))
	}
}

// On a terminal of another size the text of the main screen flows.
func TestRedrawOtherSize(t *testing.T) {
	for _, c := range []struct {
		input      string
		rows, cols int
		want       string
		y, x       int
	}{
		{"$ ls\r\na b\r\n$ ", 2, 8, "a b\n$", 1, 2},
		{"$ ls\r\na b\r\n$ ", 9, 20, "$ ls\na b\n$", 2, 2},
		{"123456789abc\r\n$ ", 4, 20, "123456789abc\n$", 1, 2},
		{"12345678\r\n$ ", 4, 4, "1234\n5678\n$", 2, 2},
		{"12345678\r\n$ ", 2, 4, "5678\n$", 1, 2},
		{"1\r\n2\r\n3\r\n4\r\n5", 2, 8, "4\n5", 1, 1},
		{"\x1b[?1049h12345678\x1b[4;8Hx", 2, 4, "1234", 1, 3},
	} {
		s := shown(c.rows, c.cols, "what was here\r\n")
		_, _ = s.Write(shown(4, 8, c.input).Redraw(c.rows, c.cols))
		if got := s.text(); got != c.want || s.cur.y != c.y || s.cur.x != c.x {
			t.Errorf("%q at %dx%d: %q, cursor %d,%d; want %q, %d,%d", c.input, c.cols, c.rows, got, s.cur.y, s.cur.x, c.want, c.y, c.x)
		}
	}
}

// Output that is cut in the middle of a sequence goes on behind the redraw.
func TestRedrawInTheMiddle(t *testing.T) {
	whole := "a\x1b[31mb\x1b]2;title\x07日\x1b(0q\x1b(B\x1b[1;1Hz"
	want := shown(4, 8, whole)
	for i := range len(whole) + 1 {
		b := shown(4, 8, "")
		_, _ = b.Write(shown(4, 8, whole[:i]).Redraw(4, 8))
		_, _ = b.Write([]byte(whole[i:]))
		if err := alike(want, b); err != nil {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}
