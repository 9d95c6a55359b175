package sshgw

// maxUntold bounds what waits to be told.
const maxUntold = 4

// tell has the client read a line about something that belongs to no channel,
// whose refusal the protocol has no words for: on standard error of the
// sessions that run, or of the next one.
func (c *conn) tell(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		s.notify(line)
	}
	if len(c.sessions) == 0 && len(c.notices) < maxUntold {
		c.notices = append(c.notices, line)
	}
}

// tellNow writes what waits to be told to a session that begins.
func (s *session) tellNow() {
	s.c.mu.Lock()
	lines := s.c.notices
	s.c.notices = nil
	s.c.mu.Unlock()
	for _, line := range lines {
		s.say(line)
	}
}
