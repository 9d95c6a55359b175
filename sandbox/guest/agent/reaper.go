package agent

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reaper starts processes and waits for them. As PID 1 it waits for every
// child there is, which includes orphans it has never heard of; otherwise for
// its own alone.
type reaper struct {
	all bool

	// mu makes a fork and the registration of its process one step, so that
	// the process cannot be reaped in between.
	mu      sync.Mutex
	waiting map[int]chan<- syscall.WaitStatus
}

func newReaper(all bool) *reaper {
	return &reaper{all: all, waiting: make(map[int]chan<- syscall.WaitStatus)}
}

// start runs fork and returns the channel that gets the status of the process.
func (r *reaper) start(fork func() (int, error)) (pid int, exited <-chan syscall.WaitStatus, err error) {
	ch := make(chan syscall.WaitStatus, 1)
	if !r.all {
		if pid, err = fork(); err == nil {
			go func() { ch <- waitFor(pid) }() // ends with the process
		}
		return pid, ch, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if pid, err = fork(); err == nil {
		r.waiting[pid] = ch
	}
	return pid, ch, err
}

func waitFor(pid int) (ws syscall.WaitStatus) {
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
			return ws
		}
	}
}

// run reaps whenever a child has ended, until done is closed.
func (r *reaper) run(done <-chan struct{}) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	for {
		r.reap()
		select {
		case <-ended:
		case <-done:
			return
		}
	}
}

// reap waits for every child that has ended, and reports whether others live.
func (r *reaper) reap() (others bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return false // no child is left
		case pid == 0:
			return true
		default:
			if ch, ours := r.waiting[pid]; ours {
				delete(r.waiting, pid)
				ch <- ws
			}
		}
	}
}
