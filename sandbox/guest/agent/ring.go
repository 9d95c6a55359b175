package agent

import (
	"github.com/sandgate/sandgate/sandbox/guest/internal/screenmode"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// ring holds the most recent output of a process as the frames that go over
// the wire, so that sending is copying. It has two coordinates that only ever
// grow: a position counts the bytes of frames and an offset the bytes of
// output in them. The oldest whole frames make room for new ones.
//
// The memory grows with what is held, up to wire.RingSize; a process that
// prints little costs little.
type ring struct {
	buf        []byte // its length is a power of two
	tail, head int64  // positions of the oldest byte held and of the next one
	tailOff    int64  // offset of the first byte of output held
	headOff    int64  // offset of the next byte of output
	last       int64  // position of the newest frame; -1 when there is none
	// lost follows the output that is no longer held, for a terminal.
	lost *screenmode.Scanner
}

// maxFrame is the longest payload of one frame in the ring: short enough that
// making room for a frame drops little.
const maxFrame = 32 << 10

// put appends output. The caller has made sure that dropping the oldest frames
// hurts nobody and that len(b) is at most maxFrame. With merge, b may become
// part of the newest frame.
func (r *ring) put(kind wire.Kind, b []byte, merge bool) {
	if merge && r.tail < r.head {
		if k, n := r.frame(r.last); k == kind && n+len(b) <= maxFrame {
			r.reserve(len(b))
			// Making room may have dropped the frame itself.
			if r.last >= r.tail && r.tail < r.head {
				r.header(r.last, kind, n+len(b))
				r.write(r.head, b)
				r.head += int64(len(b))
				r.headOff += int64(len(b))
				return
			}
		}
	}
	r.reserve(wire.HeaderSize + len(b))
	r.last = r.head
	r.header(r.head, kind, len(b))
	r.write(r.head+wire.HeaderSize, b)
	r.head += int64(wire.HeaderSize + len(b))
	r.headOff += int64(len(b))
}

// room is how many bytes can be put, headers included, while the byte at
// position keep and all behind it stay.
func (r *ring) room(keep int64) int {
	return wire.RingSize - int(r.head-max(keep, r.tail))
}

// reserve makes n bytes of room, growing first and dropping then.
func (r *ring) reserve(n int) {
	need := int(r.head-r.tail) + n
	if need > len(r.buf) && len(r.buf) < wire.RingSize {
		size := max(len(r.buf), 1<<10)
		for size < need && size < wire.RingSize {
			size *= 2
		}
		grown := ring{buf: make([]byte, size)}
		for pos := r.tail; pos < r.head; {
			b := r.contiguous(pos, r.head)
			grown.write(pos, b)
			pos += int64(len(b))
		}
		r.buf = grown.buf
	}
	for int(r.head-r.tail)+n > len(r.buf) {
		_, length := r.frame(r.tail)
		if r.lost != nil {
			r.follow(r.lost, r.tail, length)
		}
		r.tail += int64(wire.HeaderSize + length)
		r.tailOff += int64(length)
	}
}

// follow lets s take the first n bytes of output in the frame at pos.
func (r *ring) follow(s *screenmode.Scanner, pos int64, n int) {
	pos += wire.HeaderSize
	for end := pos + int64(n); pos < end; {
		part := r.contiguous(pos, end)
		s.Write(part)
		pos += int64(len(part))
	}
}

// modes is what the output before the frame at pos, and its first skip bytes,
// make of a terminal.
func (r *ring) modes(pos int64, skip int) string {
	if r.lost == nil {
		return ""
	}
	s := *r.lost
	for at := r.tail; at < pos; {
		_, n := r.frame(at)
		r.follow(&s, at, n)
		at += int64(wire.HeaderSize + n)
	}
	if skip > 0 {
		r.follow(&s, pos, skip)
	}
	return s.String()
}

// frames appends whole frames from pos on to b while they fit its capacity and
// returns it with the new position and the output bytes they carry.
func (r *ring) frames(b []byte, pos int64) ([]byte, int64, int64) {
	end, output := pos, int64(0)
	for end < r.head {
		_, n := r.frame(end)
		if len(b)+int(end-pos)+wire.HeaderSize+n > cap(b) {
			break
		}
		end += int64(wire.HeaderSize + n)
		output += int64(n)
	}
	for pos < end {
		part := r.contiguous(pos, end)
		b = append(b, part...)
		pos += int64(len(part))
	}
	return b, end, output
}

// rest appends the frame at pos without the first skip bytes of its output and
// returns the position behind it and the output bytes appended.
func (r *ring) rest(b []byte, pos int64, skip int) ([]byte, int64, int64) {
	kind, n := r.frame(pos)
	var h [wire.HeaderSize]byte
	wire.PutHeader(h[:], kind, n-skip)
	b = append(b, h[:]...)
	end := pos + int64(wire.HeaderSize+n)
	for pos += int64(wire.HeaderSize + skip); pos < end; {
		part := r.contiguous(pos, end)
		b = append(b, part...)
		pos += int64(len(part))
	}
	return b, end, int64(n - skip)
}

// seek finds the frame with the output byte at offset: it begins at position
// pos, and its output at off. When the ring holds that byte no more, or not
// yet, the nearest frame it holds is found instead.
func (r *ring) seek(offset int64) (pos, off int64) {
	if offset >= r.headOff {
		return r.head, r.headOff
	}
	pos, off = r.tail, r.tailOff
	for pos < r.head {
		_, n := r.frame(pos)
		if off+int64(n) > offset {
			break
		}
		pos += int64(wire.HeaderSize + n)
		off += int64(n)
	}
	return pos, off
}

// frame returns the header of the frame at pos.
func (r *ring) frame(pos int64) (wire.Kind, int) {
	mask := int64(len(r.buf) - 1)
	at := func(i int64) int { return int(r.buf[(pos+i)&mask]) }
	return wire.Kind(at(0)), at(1)<<24 | at(2)<<16 | at(3)<<8 | at(4)
}

func (r *ring) header(pos int64, kind wire.Kind, length int) {
	var h [wire.HeaderSize]byte
	wire.PutHeader(h[:], kind, length)
	r.write(pos, h[:])
}

func (r *ring) write(pos int64, b []byte) {
	for len(b) > 0 {
		n := copy(r.buf[int(pos)&(len(r.buf)-1):], b)
		b = b[n:]
		pos += int64(n)
	}
}

// contiguous returns the bytes from pos to end that lie in one piece.
func (r *ring) contiguous(pos, end int64) []byte {
	i := int(pos) & (len(r.buf) - 1)
	return r.buf[i:min(len(r.buf), i+int(end-pos))]
}
