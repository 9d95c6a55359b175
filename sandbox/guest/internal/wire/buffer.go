package wire

import "sync"

// Buf is a pooled buffer with room for one frame.
type Buf struct {
	// Bytes has the length HeaderSize plus at least the payload asked for.
	Bytes []byte
	pool  *sync.Pool
}

// Payload is the buffer behind the room for the header.
func (b *Buf) Payload() []byte { return b.Bytes[HeaderSize:] }

// Release gives the buffer back. It must not be used afterwards.
func (b *Buf) Release() { b.pool.Put(b) }

// The classes exist so that a key press does not occupy a large buffer.
var (
	smallBuffers = newPool(4 << 10)
	largeBuffers = newPool(MaxPayload)
)

func newPool(payload int) *sync.Pool {
	p := new(sync.Pool)
	p.New = func() any { return &Buf{Bytes: make([]byte, HeaderSize+payload), pool: p} }
	return p
}

// Buffer returns a buffer for a payload of n bytes, at most MaxPayload.
func Buffer(n int) *Buf {
	if n <= 4<<10 {
		return smallBuffers.Get().(*Buf)
	}
	return largeBuffers.Get().(*Buf)
}
