package sshgw

import (
	"io"
	"strings"
	"sync"
	"time"
)

// maxNotices bounds the lines that wait for the session to be drawn.
const maxNotices = 16

// screen is what a client's terminal shows of a session, and where what the
// client should know is said without disturbing it: as lines on standard error
// before the session is drawn, and from then on as the title of the terminal,
// which takes no room and which no program draws over by accident. A terminal
// without a title is left alone.
type screen struct {
	s      *session
	before func() // called once, before anything is drawn
	said   bool   // something was written to standard error already

	mu     sync.Mutex // held while writing, which a client can hold up
	drawn  bool
	ended  bool
	titled bool
	terminal

	notices struct {
		sync.Mutex
		lines   []string // to be said before the session is drawn
		late    bool     // it is drawn
		title   string   // to be shown, as soon as that can be
		showing bool     // a goroutine is at it
	}
}

// Write writes what the session prints.
func (c *screen) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, io.ErrClosedPipe
	}
	c.begin()
	n, err := c.s.stdout.Write(p)
	c.follow(p[:n])
	c.show()
	return n, err
}

// draw says what is to be said before the session is drawn, if it was not yet.
func (c *screen) draw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin()
}

func (c *screen) begin() {
	if c.drawn {
		return
	}
	c.drawn = true
	c.before()
	c.notices.Lock()
	lines := c.notices.lines
	c.notices.lines, c.notices.late = nil, true
	// What is drawn may push the lines out of sight.
	c.notices.title = oneLine(strings.Join(lines, "; "))
	c.notices.Unlock()
	for _, line := range lines {
		c.s.say("sandgate: " + line)
	}
	if c.said || len(lines) > 0 {
		c.s.caughtUp()
	}
}

// tell says a line. It does not wait for the client.
func (c *screen) tell(line string) {
	line = oneLine(line)
	n := &c.notices
	n.Lock()
	defer n.Unlock()
	switch {
	case !n.late && len(n.lines) < maxNotices:
		n.lines = append(n.lines, line)
	case n.late:
		n.title = line
		if n.showing {
			return
		}
		n.showing = true
		c.s.spawn("title", func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.show()
		})
	}
}

// show shows the title if nothing is under way that it would break; the next
// output tries again. The caller holds mu.
func (c *screen) show() {
	n := &c.notices
	n.Lock()
	line := n.title
	n.showing = false
	if c.ended || line == "" || !c.calm() || !hasTitle(c.s.tty.Term) {
		n.Unlock()
		return
	}
	n.title = ""
	n.Unlock()
	_, _ = io.WriteString(c.s.stdout, setTitle(line, !c.titled))
	c.titled = true
}

// leave ends the output. When the session goes on without this client, what is
// said next begins on a line of its own.
func (c *screen) leave(goesOn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	last := ""
	if goesOn {
		last = "\r\n"
	}
	if c.titled {
		last += dropTitle
	}
	if last != "" {
		_, _ = io.WriteString(c.s.stdout, last)
		c.s.caughtUp()
	}
}

// catchUpTime bounds how long a client is waited for that does not answer.
const catchUpTime = 2 * time.Second

// caughtUp waits until the client has written out what it was sent. Of what
// arrives together, OpenSSH's client writes all standard output before all
// standard error, whatever came first; its answer to a request comes when it is
// done with what came before.
func (s *session) caughtUp() {
	answered := make(chan struct{})
	s.spawn("catching up", func() {
		defer close(answered)
		_, _ = s.ch.SendRequest("keepalive@openssh.com", true, nil)
	})
	late := time.NewTimer(catchUpTime)
	defer late.Stop()
	select {
	case <-answered:
	case <-s.ctx.Done():
	case <-late.C:
	}
}
