package wire

import (
	"strings"
	"unicode"
)

// Word reports whether s has 1 to limit bytes of visible ASCII.
func Word(s string, limit int) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Printable makes s one line that is safe on a terminal: what is not printable
// becomes a space, what is not UTF-8 or lies beyond limit bytes is dropped.
func Printable(s string, limit int) string {
	s = strings.ToValidUTF8(s[:min(len(s), limit)], "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s))
}
