package sshgw

import (
	"io"
	"sync/atomic"
)

// Sizes of the buffer of a copy. It starts small, because most copies are of a
// terminal where somebody types, and grows when it is filled.
const (
	smallCopy = 1 << 10
	largeCopy = 64 << 10
)

// copyStream copies src to dst until src ends (nil error) or dst fails.
func copyStream(dst io.Writer, src io.Reader) (int64, error) {
	buf := make([]byte, smallCopy)
	for total := int64(0); ; {
		n, err := src.Read(buf)
		if n > 0 {
			m, werr := dst.Write(buf[:n])
			total += int64(m)
			if werr != nil {
				return total, werr
			}
			if n == len(buf) && n < largeCopy {
				buf = make([]byte, min(8*len(buf), largeCopy))
			}
		}
		if err != nil {
			return total, nil //nolint:nilerr // every end of src is its end: the library knows no other
		}
	}
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
