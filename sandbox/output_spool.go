package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// spool keeps one output stream of an execution or a job: the first limit bytes
// in a file, for ever; what comes after goes to those who follow at that moment
// and is otherwise dropped.
//
// A follower of an execution that reads gets every byte; one that stops reading
// beyond the limit holds the process back, as a pipe would. Before the first
// byte is dropped the process waits a little for a first follower, who may be
// on the way. A job is nobody's foreground: it is never held back, and a
// follower that cannot keep up beyond the limit misses bytes.
//
// A spool is safe for concurrent use.
type spool struct {
	mu        sync.Mutex
	cond      *sync.Cond
	file      *os.File
	index     *spoolIndex
	now       func() time.Time
	limit     int64
	kept      int64
	total     int64 // all bytes written, kept or not
	closed    bool
	released  bool // the files are closed
	patient   bool // still waits for a first follower
	lossy     bool // never waits for anybody
	followers map[*follower]struct{}
}

// follower gets what does not go into the file.
type follower struct {
	queue []byte
	marks []arrival // of bytes in the queue, when the follower wants to know
	timed bool
	gone  bool
}

// arrival says when the byte at an offset came, and those up to the next one.
type arrival struct {
	offset int64
	at     time.Time
}

// firstFollowerWait is how long a process is held at the limit when nobody has
// followed its output yet.
const firstFollowerWait = 3 * time.Second

// followerQueue bounds what waits for one follower.
const followerQueue = 1 << 20

// openSpool opens or continues the file at path. What an earlier server has
// taken of the stream counts, whether it kept it or not.
func openSpool(path string, limit int64, now func() time.Time) (*spool, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		f.Close()
		return nil, err
	}
	index, err := openIndex(path + indexSuffix)
	if err != nil {
		f.Close()
		return nil, err
	}
	s := &spool{
		file: f, index: index, now: now, limit: limit, kept: size, total: max(size, index.total),
		patient: true, followers: map[*follower]struct{}{},
	}
	if s.total > s.kept {
		s.limit = s.kept // nothing may follow where something is missing
	}
	s.cond = sync.NewCond(&s.mu)
	return s, nil
}

// Write keeps and forwards p. Where the disk refuses, what follows is forwarded
// but not kept.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	at := s.now()
	if room := s.limit - s.kept; room > 0 && n > 0 {
		s.index.note(s.kept, at)
		part := p[:min(int64(len(p)), room)]
		w, err := s.file.WriteAt(part, s.kept)
		s.kept += int64(w)
		p = p[w:]
		if err != nil {
			s.limit = s.kept // a full disk ends the keeping, not the command
		}
		s.cond.Broadcast()
	}
	if len(p) > 0 && s.patient && !s.lossy {
		s.awaitFollower()
	}
	s.forward(p, at)
	s.total += int64(n)
	if len(p) > 0 {
		s.index.count(s.total)
	}
	return n, nil
}

// forward gives what is not kept to the followers. The caller holds the lock.
func (s *spool) forward(p []byte, at time.Time) {
	for len(p) > 0 {
		wait := false
		for f := range s.followers {
			wait = wait || len(f.queue) >= followerQueue
		}
		if wait && !s.closed && !s.lossy {
			s.cond.Wait()
			continue
		}
		for f := range s.followers {
			if s.lossy && len(f.queue) >= followerQueue {
				continue
			}
			if f.timed && (len(f.marks) == 0 || at.Sub(f.marks[len(f.marks)-1].at) >= indexStep) {
				f.marks = append(f.marks, arrival{int64(len(f.queue)), at})
			}
			f.queue = append(f.queue, p...)
		}
		p = nil
		s.cond.Broadcast()
	}
}

// awaitFollower waits once, for a bounded time, until somebody follows. The
// caller holds the lock.
func (s *spool) awaitFollower() {
	timer := time.AfterFunc(firstFollowerWait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.patient = false
		s.cond.Broadcast()
	})
	defer timer.Stop()
	for s.patient && !s.closed {
		s.cond.Wait()
	}
	s.patient = false
}

// close ends the spool: followers get the rest and finish.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.cond.Broadcast()
	}
}

// release closes the files once nobody follows any more. The caller has called
// close before.
func (s *spool) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.followers) > 0 {
		s.cond.Wait()
	}
	s.released = true
	s.file.Close()
	s.index.close()
}

func (s *spool) sizes() (kept, total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept, s.total
}

// skipped notes output that was lost before it reached any spool.
func (s *spool) skipped(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.skip(n)
}

// lost is how much skipped was told of, by earlier servers too.
func (s *spool) lost() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.lost
}
