package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// spool keeps one output stream of an execution: the first limit bytes in a
// file, for ever; what comes after goes to those who follow at that moment and
// is otherwise dropped. A follower that reads gets every byte; one that stops
// reading beyond the limit holds the process back, as a pipe would. Before the
// first byte is dropped the process waits a little for a first follower, who
// may be on the way.
//
// A spool is safe for concurrent use.
type spool struct {
	mu        sync.Mutex
	cond      *sync.Cond
	file      *os.File
	limit     int64
	kept      int64
	total     int64 // all bytes written, kept or not
	closed    bool
	patient   bool // still waits for a first follower
	followers map[*follower]struct{}
}

// follower gets what does not go into the file.
type follower struct {
	queue []byte
	gone  bool
}

// firstFollowerWait is how long a process is held at the limit when nobody has
// followed its output yet.
const firstFollowerWait = 3 * time.Second

// followerQueue bounds what waits for one follower.
const followerQueue = 1 << 20

// openSpool opens or continues the file at path.
func openSpool(path string, limit int64) (*spool, error) {
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
	s := &spool{file: f, limit: limit, kept: size, total: size, patient: true, followers: map[*follower]struct{}{}}
	s.cond = sync.NewCond(&s.mu)
	return s, nil
}

// Write keeps and forwards p. An error means the disk refused; what follows is
// then forwarded but not kept.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	s.total += int64(n)
	if room := s.limit - s.kept; room > 0 {
		part := p[:min(int64(len(p)), room)]
		w, err := s.file.WriteAt(part, s.kept)
		s.kept += int64(w)
		p = p[w:]
		if err != nil {
			s.limit = s.kept // a full disk ends the keeping, not the command
		}
		s.cond.Broadcast()
	}
	if len(p) > 0 && s.patient {
		s.awaitFollower()
	}
	for len(p) > 0 {
		wait := false
		for f := range s.followers {
			wait = wait || len(f.queue) >= followerQueue
		}
		if wait && !s.closed {
			s.cond.Wait()
			continue
		}
		for f := range s.followers {
			f.queue = append(f.queue, p...)
		}
		p = nil
		s.cond.Broadcast()
	}
	return n, nil
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

// release closes the file once nobody follows any more. The caller has called
// close before.
func (s *spool) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.followers) > 0 {
		s.cond.Wait()
	}
	s.file.Close()
}

func (s *spool) sizes() (kept, total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept, s.total
}

// follow copies everything from the beginning to w until the spool is closed.
func (s *spool) follow(ctx context.Context, w io.Writer) error {
	f := &follower{}
	s.mu.Lock()
	s.followers[f] = struct{}{}
	s.patient = false
	s.cond.Broadcast()
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.gone = true
		s.cond.Broadcast()
	})
	defer stop()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.followers, f)
		s.cond.Broadcast()
	}()
	buf := make([]byte, 64<<10)
	var off int64
	for {
		s.mu.Lock()
		for off == s.kept && len(f.queue) == 0 && !s.closed && !f.gone {
			s.cond.Wait()
		}
		kept, gone := s.kept, f.gone
		var tail []byte
		if off == kept {
			tail, f.queue = f.queue, nil
			s.cond.Broadcast()
		}
		done := off == kept && len(tail) == 0
		s.mu.Unlock()
		if gone {
			return ctx.Err()
		}
		if done {
			return nil
		}
		if off < kept {
			n, err := s.file.ReadAt(buf[:min(int64(len(buf)), kept-off)], off)
			if n == 0 && err != nil {
				return err
			}
			off += int64(n)
			tail = buf[:n]
		}
		if _, err := w.Write(tail); err != nil {
			return err
		}
	}
}

// forgetOutput removes what the executions of a sandbox have printed.
func (e *Engine) forgetOutput(ctx context.Context, sandboxID string) {
	all, err := e.cfg.Store.Executions(ctx, sandboxID, 0)
	if err != nil {
		e.cfg.Log.Warn("list executions to remove their output", "sandbox", sandboxID, "err", err)
		return
	}
	for _, x := range all {
		if err := os.RemoveAll(filepath.Join(e.cfg.OutputDir, x.ID)); err != nil {
			e.cfg.Log.Warn("remove the output of an execution", "execution", x.ID, "err", err)
		}
	}
}

// outputPath is where a stream of an execution is kept.
func (e *Engine) outputPath(executionID string, s Stream) string {
	return filepath.Join(e.cfg.OutputDir, executionID, string(s))
}

// Output copies a stream of an execution to w.
func (a *Actor) Output(ctx context.Context, executionID string, st Stream, w io.Writer) error {
	if st != Stdout && st != Stderr {
		return fault.InvalidField("stream", "%q is not a stream: use stdout or stderr", clip(string(st), 32))
	}
	x, err := a.execution(ctx, executionID)
	if err != nil {
		return err
	}
	if run := a.e.running(x.ID); run != nil {
		return run.spools[st].follow(ctx, w)
	}
	f, err := os.Open(a.e.outputPath(x.ID, st))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the output of %s cannot be read", x.ID).About("execution")
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
