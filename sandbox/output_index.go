package sandbox

import (
	"encoding/binary"
	"os"
	"time"
)

// indexSuffix is what the name of a stream's side file ends with.
const indexSuffix = ".index"

// The side file of a stream tells when its bytes came, and how much of it there
// was beyond what is kept. All numbers are little endian:
//
//	magic     8 bytes
//	total     int64: all bytes of the stream, when more came than is kept
//	lost      int64: bytes of the command's output that reached no stream
//	reserved  8 bytes
//	arrivals  16 bytes each: offset, nanoseconds since the epoch
//
// An arrival is written before the bytes it tells of and the total after those
// it counts, so that what a crash leaves is true of the bytes that are kept. A
// broken side file costs the times and nothing else.
const (
	indexMagic  = "sgindex\x01"
	indexHeader = 32
	indexEntry  = 16
)

// Arrivals are noted no closer than a step, which grows tenfold with every
// indexTier of them: that bounds the file, and a command that runs for months
// still has its times, if coarser ones.
const (
	indexStep  = time.Millisecond
	indexTier  = 16 << 10
	indexTiers = 8
)

// spoolIndex writes a side file.
type spoolIndex struct {
	file    *os.File
	entries int64
	last    time.Time
	total   int64
	lost    int64
}

func openIndex(path string) (*spoolIndex, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	x := &spoolIndex{file: f}
	var h [indexHeader]byte
	if n, _ := f.ReadAt(h[:], 0); n == indexHeader && string(h[:8]) == indexMagic {
		x.total = int64(binary.LittleEndian.Uint64(h[8:]))
		x.lost = int64(binary.LittleEndian.Uint64(h[16:]))
		if info, err := f.Stat(); err == nil {
			x.entries = max(info.Size()-indexHeader, 0) / indexEntry
		}
		return x, nil
	}
	// Its room is taken now, so that a disk that is full later can still hold
	// the counts.
	h = [indexHeader]byte{}
	copy(h[:], indexMagic)
	if _, err := f.WriteAt(h[:], 0); err != nil {
		f.Close()
		return nil, err
	}
	return x, nil
}

// note remembers that the byte at offset comes now.
func (x *spoolIndex) note(offset int64, at time.Time) {
	tier := x.entries / indexTier
	if tier >= indexTiers {
		return
	}
	step := indexStep
	for range tier {
		step *= 10
	}
	if x.entries > 0 && at.Sub(x.last) < step && !at.Before(x.last) {
		return
	}
	var b [indexEntry]byte
	binary.LittleEndian.PutUint64(b[:], uint64(offset))
	binary.LittleEndian.PutUint64(b[8:], uint64(at.UnixNano()))
	if _, err := x.file.WriteAt(b[:], indexHeader+x.entries*indexEntry); err != nil {
		return // a full disk costs the times
	}
	x.entries++
	x.last = at
}

// count writes down how long the whole stream is.
func (x *spoolIndex) count(total int64) {
	x.total = total
	x.put(8, total)
}

// skip counts bytes that reached no stream.
func (x *spoolIndex) skip(n int64) {
	x.lost += n
	x.put(16, x.lost)
}

// put overwrites a number of the header, whose room is taken. Where that fails
// all the same, a later server takes some output twice.
func (x *spoolIndex) put(at, n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	_, _ = x.file.WriteAt(b[:], at)
}

func (x *spoolIndex) close() { x.file.Close() }

// timeline tells when bytes came, for offsets that only grow.
type timeline struct {
	file *os.File // nil: no times are known
	read int64    // arrivals read so far
	cur  arrival
	next arrival
	has  bool // next is valid
}

// openTimeline reads a side file from its beginning.
func openTimeline(path string) *timeline {
	f, err := os.Open(path)
	if err != nil {
		return &timeline{}
	}
	return &timeline{file: f}
}

// at returns when the byte at offset came, or the zero time.
func (t *timeline) at(offset int64) time.Time {
	for t.file != nil {
		if !t.has && !t.fetch() {
			break
		}
		if t.next.offset > offset {
			break
		}
		t.cur, t.has = t.next, false
	}
	return t.cur.at
}

// fetch reads the next arrival. What is not there yet may be there later.
func (t *timeline) fetch() bool {
	var b [indexEntry]byte
	if n, _ := t.file.ReadAt(b[:], indexHeader+t.read*indexEntry); n < indexEntry {
		return false
	}
	t.read++
	t.next = arrival{int64(binary.LittleEndian.Uint64(b[:])), time.Unix(0, int64(binary.LittleEndian.Uint64(b[8:]))).UTC()}
	t.has = true
	return true
}

func (t *timeline) close() {
	if t.file != nil {
		t.file.Close()
	}
}
