package sandbox

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AuditText makes text of foreign origin fit for an audit record: one line of
// bounded length, of printable characters alone; everything else is escaped as
// in Go, so that what was sent can be told from what it looks like.
func AuditText(s string, most int) string {
	var b strings.Builder
	for len(s) > 0 {
		if b.Len() >= most {
			b.WriteString("…")
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1, r < ' ' && r != '\n', r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case !unicode.IsPrint(r), r == utf8.RuneError:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}
