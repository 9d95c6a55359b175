package sshgw

import "github.com/sandgate/sandgate/keys"

// maxOriginal bounds what a forced command is told of the one that was asked for.
const maxOriginal = 16 << 10

// limits are what the client's certificate takes away from its sessions.
func (s *session) limits() keys.SessionLimits {
	p, _ := principalOf(s.sc.Permissions)
	return p.Limits
}

// forced tells the command that runs instead what was asked for, as sshd does.
func (s *session) forced(original string) {
	if len(original) <= maxOriginal {
		s.env.vars = append(s.env.vars, "SSH_ORIGINAL_COMMAND="+original)
	}
}
