package screen

import "strconv"

// color is a colour: 0 is the default, then come those of the palette and those
// that are told by their parts.
type color uint32

const (
	indexed color = 1 << 24
	direct  color = 2 << 24
)

// style is how a cell looks.
type style struct {
	fg, bg, line color // line is that of the underline
	attrs        uint16
	under        uint8 // kind of underline: 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed
}

// The attributes, by the parameter that switches them on.
const (
	bold    uint16 = 1 << 1
	faint   uint16 = 1 << 2
	italic  uint16 = 1 << 3
	blink   uint16 = 1 << 5
	rapid   uint16 = 1 << 6
	inverse uint16 = 1 << 7
	conceal uint16 = 1 << 8
	strike  uint16 = 1 << 9
	over    uint16 = 1 << 10 // parameter 53
)

// sgr obeys a sequence that changes how characters look.
func (y *style) sgr(s *sequence) {
	for i := 0; i < s.n; i++ {
		v := int(s.params[i])
		switch {
		case v == 0:
			*y = style{}
		case v == 4 && i+1 < s.n && s.part&(1<<(i+1)) != 0:
			i++
			y.under = uint8(min(s.params[i], 5))
		case v == 4:
			y.under = 1
		case v >= 1 && v <= 9:
			y.attrs |= 1 << v
		case v == 21:
			y.under = 2
		case v == 22:
			y.attrs &^= bold | faint
		case v == 24:
			y.under = 0
		case v == 25:
			y.attrs &^= blink | rapid
		case v == 23, v == 27, v == 28, v == 29:
			y.attrs &^= 1 << (v - 20)
		case v >= 30 && v <= 37:
			y.fg = indexed | color(v-30)
		case v >= 40 && v <= 47:
			y.bg = indexed | color(v-40)
		case v >= 90 && v <= 97:
			y.fg = indexed | color(v-90+8)
		case v >= 100 && v <= 107:
			y.bg = indexed | color(v-100+8)
		case v == 39:
			y.fg = 0
		case v == 49:
			y.bg = 0
		case v == 59:
			y.line = 0
		case v == 53:
			y.attrs |= over
		case v == 55:
			y.attrs &^= over
		case v == 38 || v == 48 || v == 58:
			c, used, ok := s.color(i + 1)
			i += used
			if !ok {
				break
			}
			switch v {
			case 38:
				y.fg = c
			case 48:
				y.bg = c
			default:
				y.line = c
			}
		}
		// Parts that nothing has asked for belong to what was obeyed.
		for i+1 < s.n && s.part&(1<<(i+1)) != 0 {
			i++
		}
	}
}

// color reads a colour from parameter i on, in either form: 38;2;r;g;b and
// 38:2::r:g:b, and returns how many parameters it took.
func (s *sequence) color(i int) (c color, used int, ok bool) {
	if i >= s.n {
		return 0, 0, false
	}
	parts := s.part&(1<<i) != 0
	end := s.n
	if parts {
		for end = i; end < s.n && s.part&(1<<end) != 0; end++ {
		}
	}
	switch s.params[i] {
	case 5:
		if i+1 < end && s.params[i+1] < 256 {
			return indexed | color(s.params[i+1]), 2, true
		}
		return 0, min(2, end-i), false
	case 2:
		first := i + 1
		if parts && end-i >= 5 {
			first++ // the colour space, which nobody gives
		}
		if first+2 < end {
			r, g, b := s.params[first], s.params[first+1], s.params[first+2]
			if r < 256 && g < 256 && b < 256 {
				return direct | color(r)<<16 | color(g)<<8 | color(b), first + 3 - i, true
			}
		}
		return 0, min(4, end-i), false
	}
	return 0, 1, false
}

// append appends the sequence that makes characters look so, whatever they
// looked like before.
func (y *style) append(b []byte) []byte {
	b = append(b, "\x1b[0"...)
	for v := 1; v <= 9; v++ {
		if y.attrs&(1<<v) != 0 {
			b = append(b, ';', byte('0'+v))
		}
	}
	switch {
	case y.under == 1:
		b = append(b, ";4"...)
	case y.under > 1:
		b = append(b, ";4:"...)
		b = append(b, '0'+y.under)
	}
	if y.attrs&over != 0 {
		b = append(b, ";53"...)
	}
	b = y.fg.append(b, 30)
	b = y.bg.append(b, 40)
	b = y.line.append(b, 50)
	return append(b, 'm')
}

// append appends a colour as parameters. base is 30 for the foreground, 40 for
// the background and 50 for the underline, which has no short form.
func (c color) append(b []byte, base int) []byte {
	n := int(c & 0xffffff)
	switch {
	case c == 0:
		return b
	case c < direct && n < 8 && base < 50:
		return strconv.AppendInt(append(b, ';'), int64(base+n), 10)
	case c < direct && n < 16 && base < 50:
		return strconv.AppendInt(append(b, ';'), int64(base+60+n-8), 10)
	}
	b = strconv.AppendInt(append(b, ';'), int64(base+8), 10)
	if c < direct {
		return strconv.AppendInt(append(b, ";5;"...), int64(n), 10)
	}
	b = append(b, ";2"...)
	for _, part := range []int{n >> 16, n >> 8 & 0xff, n & 0xff} {
		b = strconv.AppendInt(append(b, ';'), int64(part), 10)
	}
	return b
}
