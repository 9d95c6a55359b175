package sshgw

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// quietTime is how long a sandbox may take to come up before a client without
// a terminal is told why nothing happens.
const quietTime = time.Second

// wake tells the client why its session does not start at once: the sandbox
// has to come up first. It is called before something is started there; the
// first call of up says that it has been, or that it failed.
//
// On a terminal somebody waits: the line is there at once, and its end says how
// long it took. Without one a program reads, which gets one line, and that only
// when it takes long. It always goes to standard error.
func (s *session) wake(d door) (up func(ok bool), told bool) {
	if s.tty == nil {
		ctx, cancel := context.WithCancel(s.ctx)
		s.spawn("progress", func() { s.wakeQuietly(ctx, d) })
		return func(bool) { cancel() }, false
	}
	began := s.c.srv.cfg.Now()
	line := s.asleep(s.ctx, d)
	if line == "" {
		return func(bool) {}, false
	}
	_, _ = io.WriteString(s.stderr, line+" …")
	var once sync.Once
	return func(ok bool) {
		once.Do(func() {
			end := "\r\n"
			if ok {
				end = fmt.Sprintf(" done in %.1f s\r\n", s.c.srv.cfg.Now().Sub(began).Seconds())
			}
			_, _ = io.WriteString(s.stderr, end)
		})
	}, true
}

func (s *session) wakeQuietly(ctx context.Context, d door) {
	late := time.NewTimer(quietTime)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return
	case <-late.C:
	}
	if line := s.asleep(ctx, d); line != "" {
		s.say(line)
	}
}

// asleep says what the sandbox has to do before it can be used; "" for nothing.
// What is wrong with it, if anything, comes out when it is used.
func (s *session) asleep(ctx context.Context, d door) string {
	box, err := d.ops.Get(ctx, d.ref)
	if err != nil {
		return ""
	}
	switch box.Status {
	case sandbox.Creating:
		return "sandgate: waiting for " + box.ID + ", which is being created"
	case sandbox.Paused:
		if box.PausedAt.IsZero() {
			return "sandgate: resuming " + box.ID
		}
		return "sandgate: resuming " + box.ID + " (paused " + ago(s.c.srv.cfg.Now().Sub(box.PausedAt)) + ")"
	case sandbox.Suspended:
		return "sandgate: starting " + box.ID + " again"
	}
	return ""
}

// ago says how long something has lasted, as a person would.
func ago(d time.Duration) string {
	n, unit := int64(d/time.Second), "s"
	switch {
	case n < 1:
		return "a moment"
	case n >= 48*3600:
		n, unit = n/86400, "d"
	case n >= 120*60:
		n, unit = n/3600, "h"
	case n >= 120:
		n, unit = n/60, "m"
	}
	return strconv.FormatInt(n, 10) + unit
}
