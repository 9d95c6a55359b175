package cli

import (
	"bytes"
	"io"
)

// key is something to do with a recording that is being shown.
type key int

const (
	keyQuit key = iota + 1
	keyPause
	keyBack
	keyAhead
	keyFaster
	keySlower
)

// keyBytes are what terminals send for keys.
var keyBytes = []struct {
	bytes string
	key   key
}{
	{"\x1b[A", keyFaster}, {"\x1bOA", keyFaster},
	{"\x1b[B", keySlower}, {"\x1bOB", keySlower},
	{"\x1b[C", keyAhead}, {"\x1bOC", keyAhead},
	{"\x1b[D", keyBack}, {"\x1bOD", keyBack},
	{"q", keyQuit}, {"Q", keyQuit}, {"\x03", keyQuit}, {"\x04", keyQuit},
	{" ", keyPause},
}

// readKeys hands out the keys that are pressed, and leaves out all others. The
// reading ends when in does.
func readKeys(in io.Reader) <-chan key {
	keys := make(chan key, 16)
	go func() {
		buf := make([]byte, 64)
		for {
			n, err := in.Read(buf)
			for _, k := range keysIn(buf[:n]) {
				select {
				case keys <- k:
				default: // nobody can press that fast
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return keys
}

// keysIn finds keys in what a terminal has sent at once.
func keysIn(b []byte) (keys []key) {
	for len(b) > 0 {
		n := 1
		for _, k := range keyBytes {
			if bytes.HasPrefix(b, []byte(k.bytes)) {
				keys, n = append(keys, k.key), len(k.bytes)
				break
			}
		}
		b = b[n:]
	}
	return keys
}
