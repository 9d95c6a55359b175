package agent

import (
	"os"
	"syscall"
	"time"
)

// shutdownPoll is how often the end of the processes is looked for.
const shutdownPoll = 5 * time.Millisecond

// Shutdown ends every process, gently first, then all connections. It starts
// once; every call returns when it is over.
//
// As PID 1 it ends all that lives in the sandbox, otherwise the process groups
// that the agent has started.
func (a *Agent) Shutdown() {
	a.shutdownOnce.Do(func() {
		a.mu.Lock()
		a.closed = true
		if a.sweep != nil {
			a.sweep.Stop()
		}
		a.mu.Unlock()

		a.signalEverything(syscall.SIGTERM)
		if !a.emptyWithin(a.cfg.ShutdownGrace) {
			a.signalEverything(syscall.SIGKILL)
			a.emptyWithin(a.cfg.ShutdownGrace)
		}

		a.mu.Lock()
		defer a.mu.Unlock()
		for s := range a.sessions {
			// Not here: it waits for streams, which may wait for us.
			go s.mux.Close()
		}
		close(a.down)
	})
	<-a.down
}

// pidOne reports whether everything in sight is the agent's. Reap alone is not
// enough to send signals to every process there is.
func (a *Agent) pidOne() bool { return a.cfg.Reap && os.Getpid() == 1 }

func (a *Agent) signalEverything(sig syscall.Signal) {
	if a.pidOne() {
		syscall.Kill(-1, sig)
	}
	for _, p := range a.all() {
		p.mu.Lock()
		over := p.ended || p.pid == 0
		p.mu.Unlock()
		switch {
		case over:
		case sig == syscall.SIGKILL:
			syscall.Kill(-p.pid, sig)
			for _, out := range p.outputs {
				out.file.Close()
			}
		default:
			if !a.pidOne() {
				syscall.Kill(-p.pid, sig)
			}
			if p.master != nil {
				// An interactive shell ignores SIGTERM.
				p.hangup()
			}
		}
	}
}

// emptyWithin waits until no process is left, at most for d.
func (a *Agent) emptyWithin(d time.Duration) bool {
	deadline := time.Now().Add(d)
	for {
		if a.empty() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(shutdownPoll)
	}
}

func (a *Agent) empty() bool {
	if a.pidOne() {
		return !a.reaper.reap()
	}
	for _, p := range a.all() {
		p.mu.Lock()
		over := p.ended
		p.mu.Unlock()
		if !over {
			return false
		}
	}
	return true
}
