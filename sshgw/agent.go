package sshgw

import (
	"context"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// Agent forwarding (ssh -A): a socket in the sandbox whose connections are
// carried to the client's ssh agent. It belongs to the one session that asked
// for it, not to the connection: others of the same connection get none.

// askAgent notes that the client offers its agent.
func (s *session) askAgent() bool {
	if s.started || s.c.srv.cfg.NoForwarding {
		return false
	}
	s.agent = true
	return true
}

// forwardAgent opens the socket, if the client has offered its agent. At path
// it is made in the place of what is left of an earlier one; without a path it
// is made where only the session's user can enter. env is what the process has
// to know; stop closes the socket and is never nil.
//
// Without the agent the session goes on, as with sshd: the person at a
// terminal is told, a program that reads our standard error is not.
func (s *session) forwardAgent(d door, path string) (env []string, stop func()) {
	if !s.agent || d.ref == "" {
		return nil, func() {}
	}
	none := func(err error) ([]string, func()) {
		s.log.Info("ssh agent not forwarded", "principal", d.who.ID, "where", d.ref, "err", quoted(err.Error()))
		if s.tty != nil {
			s.say("sandgate: your ssh agent is not reached from here: " + oneLine(fault.From(err).Error()))
		}
		return nil, func() {}
	}
	release, refusal := s.c.acquire(forwardChannel)
	if refusal != "" {
		return none(fault.New(fault.Exhausted, "%s", refusal))
	}
	ctx, cancel := context.WithTimeout(s.ctx, listenTime)
	defer cancel()
	l, err := d.ops.Listen(ctx, d.ref, guest.ListenRequest{Network: "unix", Address: path, User: d.account, Replace: path != ""})
	if err != nil {
		release()
		return none(err)
	}
	serving, stop := context.WithCancel(s.ctx)
	s.spawn("agent", func() {
		defer release()
		defer func() { _ = l.Close() }()
		for {
			st, _, err := l.Accept(serving)
			if err != nil {
				return
			}
			s.c.carry(s.sc, d, "auth-agent@openssh.com", nil, st)
		}
	})
	return []string{"SSH_AUTH_SOCK=" + l.Address()}, stop
}
