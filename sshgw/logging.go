package sshgw

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// logLimit lets a number of lines a second into the log and counts the rest.
type logLimit struct {
	now  func() time.Time
	most int

	mu      sync.Mutex
	second  time.Time
	used    int
	skipped int
}

func newLogLimit(now func() time.Time, perSecond int) *logLimit {
	return &logLimit{now: now, most: perSecond}
}

// take reports whether to log, and how many lines were left out before.
func (l *logLimit) take() (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.second) >= time.Second {
		l.second, l.used = now, 0
	}
	if l.used >= l.most {
		l.skipped++
		return 0, false
	}
	l.used++
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}

// contain is deferred on every goroutine of a client: a panic ends that
// client's business, not the server.
func contain(log *slog.Logger, what string, cleanup func()) {
	r := recover()
	if r == nil {
		return
	}
	log.Error("ssh panic", "in", what, "panic", r, "stack", string(debug.Stack()))
	if cleanup != nil {
		cleanup()
	}
}
