package sshgw

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxQuoted is how much of a foreign string goes into one log attribute.
const maxQuoted = 128

// quoted makes a string of foreign origin fit for a log line: plain printable
// ASCII stays as it is, everything else is quoted and escaped, and long
// strings are cut.
func quoted(s string) string {
	cut := ""
	if len(s) > maxQuoted {
		s, cut = s[:maxQuoted], "…"
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			return strconv.QuoteToASCII(s) + cut
		}
	}
	return s + cut
}

// oneLine makes a message fit for a terminal: one line of bounded length
// without control characters, so that nothing in it can move the cursor.
func oneLine(s string) string {
	const most = 500
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= most {
			b.WriteString("…")
			break
		}
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case r == utf8.RuneError || !unicode.IsPrint(r):
			b.WriteByte('?')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
