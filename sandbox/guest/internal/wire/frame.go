package wire

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// HeaderSize is the length of a frame's header.
const HeaderSize = 5

// PutHeader writes the header of a frame into b.
func PutHeader(b []byte, kind Kind, length int) {
	b[0] = byte(kind)
	binary.BigEndian.PutUint32(b[1:HeaderSize], uint32(length))
}

// AppendFrame appends a whole frame to b.
func AppendFrame(b []byte, kind Kind, payload []byte) []byte {
	var head [HeaderSize]byte
	PutHeader(head[:], kind, len(payload))
	return append(append(b, head[:]...), payload...)
}

// AppendJSON appends a frame whose payload is the JSON of v.
func AppendJSON(b []byte, kind Kind, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return b, err
	}
	return AppendFrame(b, kind, body), nil
}

// limit is the longest payload a frame of the kind may have, and -1 for a kind
// that does not exist.
func (k Kind) limit() int {
	switch k {
	case KindData, KindStdout, KindStderr, KindEntries:
		return MaxPayload
	case KindEOF, KindCollected:
		return 0
	case KindGap:
		return 8
	case KindExit, KindConnected:
		return MaxControl
	case KindResult:
		return MaxResult
	}
	return -1
}

// FrameReader reads frames. It reads no further than the frame it was asked
// for, and hands out payloads piece by piece, so that it needs no buffer of
// its own while it waits.
type FrameReader struct {
	r      io.Reader
	head   [HeaderSize]byte
	left   int // bytes of the current payload not yet read
	shrink func()
	idle   *time.Timer
}

// A stream of the multiplexer keeps the largest buffer it ever needed. Some
// time after the last large frame it is told to let go of it.
const (
	shrinkSize  = 16 << 10
	shrinkAfter = 2 * time.Second
)

// NewFrameReader returns a reader of the frames of r.
func NewFrameReader(r io.Reader) *FrameReader {
	f := &FrameReader{r: r}
	if s, ok := r.(interface{ Shrink() }); ok {
		f.shrink = s.Shrink
	}
	return f
}

// large notes a large frame.
func (f *FrameReader) large() {
	switch {
	case f.shrink == nil:
	case f.idle == nil:
		f.idle = time.AfterFunc(shrinkAfter, f.shrink)
	default:
		f.idle.Reset(shrinkAfter)
	}
}

// Next reads the next header. The payload of the frame before it must have
// been read. io.EOF means that the stream ended between two frames.
func (f *FrameReader) Next() (Kind, int, error) {
	if f.left != 0 {
		return 0, 0, Violation("a frame was left unread")
	}
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return 0, 0, err
	}
	kind := Kind(f.head[0])
	n := binary.BigEndian.Uint32(f.head[1:])
	limit := kind.limit()
	if limit < 0 {
		return 0, 0, Violation("unknown kind of frame %d", kind)
	}
	if int64(n) > int64(limit) {
		return 0, 0, Violation("frame of kind %d with %d bytes, at most %d are allowed", kind, n, limit)
	}
	f.left = int(n)
	if f.left >= shrinkSize {
		f.large()
	}
	return kind, f.left, nil
}

// Left is how much of the current payload has not been read.
func (f *FrameReader) Left() int { return f.left }

// Read reads from the current payload and returns io.EOF at its end.
func (f *FrameReader) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.r.Read(p[:min(len(p), f.left)])
	f.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Payload reads the whole payload of a frame that carries a fact.
func (f *FrameReader) Payload() ([]byte, error) {
	b := make([]byte, f.left)
	n, err := io.ReadFull(f, b)
	return b[:n], err
}

// JSON reads the whole payload into v.
func (f *FrameReader) JSON(v any) error {
	b, err := f.Payload()
	if err != nil {
		return err
	}
	return Unmarshal(b, v)
}

// Offset reads the payload of a gap.
func (f *FrameReader) Offset() (int64, error) {
	b, err := f.Payload()
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, Violation("gap of %d bytes", len(b))
	}
	v := binary.BigEndian.Uint64(b)
	if v > MaxOffset {
		return 0, Violation("offset %d", v)
	}
	return int64(v), nil
}

// AppendGap appends a gap to b.
func AppendGap(b []byte, offset int64) []byte {
	return AppendFrame(b, KindGap, binary.BigEndian.AppendUint64(nil, uint64(offset)))
}

// FrameWriter writes frames, each with one Write. It is safe for concurrent
// use; frames do not mix.
type FrameWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// NewFrameWriter returns a writer of frames to w.
func NewFrameWriter(w io.Writer) *FrameWriter { return &FrameWriter{w: w} }

// Data writes b as frames of the kind and returns how much of it was written.
func (f *FrameWriter) Data(kind Kind, b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var done int
	for done < len(b) {
		n := min(len(b)-done, MaxPayload)
		buf := Buffer(n)
		frame := append(buf.Bytes[:HeaderSize], b[done:done+n]...)
		PutHeader(frame, kind, n)
		_, err := f.w.Write(frame)
		buf.Release()
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Copy copies r into frames of the kind until it ends.
func (f *FrameWriter) Copy(kind Kind, r io.Reader) error {
	buf := Buffer(MaxPayload)
	defer buf.Release()
	for {
		n, err := r.Read(buf.Payload())
		if n > 0 {
			if werr := f.Filled(kind, buf, n); werr != nil {
				return &WriteError{werr}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Filled writes the first n bytes of a buffer's payload as one frame.
func (f *FrameWriter) Filled(kind Kind, buf *Buf, n int) error {
	PutHeader(buf.Bytes, kind, n)
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.w.Write(buf.Bytes[:HeaderSize+n])
	return err
}

// Fact writes one frame with a payload, which may be empty.
func (f *FrameWriter) Fact(kind Kind, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.w.Write(AppendFrame(nil, kind, payload))
	return err
}

// JSON writes one frame whose payload is the JSON of v.
func (f *FrameWriter) JSON(kind Kind, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.Fact(kind, body)
}

// WriteError is an error of the writing side of Copy.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return e.Err.Error() }
func (e *WriteError) Unwrap() error { return e.Err }
