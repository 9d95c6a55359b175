package asciicast

import "unicode/utf8"

// text makes text of bytes that come in pieces. A character that is cut in two
// is held back until the rest of it comes; what is no UTF-8 becomes U+FFFD, one
// for each byte.
type text struct {
	held [utf8.UTFMax]byte
	n    int
}

// take returns the text that ends with p, as far as it is complete.
func (t *text) take(p []byte) string {
	if t.n > 0 {
		p = append(t.held[:t.n:t.n], p...)
		t.n = 0
	}
	for i := len(p) - 1; i >= 0 && i >= len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				t.n = copy(t.held[:], p[i:])
				p = p[:i]
			}
			break
		}
	}
	return valid(p)
}

// rest returns what is held back: nothing will complete it any more.
func (t *text) rest() string {
	p := t.held[:t.n]
	t.n = 0
	return valid(p)
}

// valid is p with U+FFFD in place of each byte that is no UTF-8.
func valid(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	return string([]rune(string(p)))
}
