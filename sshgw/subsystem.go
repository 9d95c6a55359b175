package sshgw

// The subsystems, by the name clients ask for.
const subsystemSFTP = "sftp"

// subsystem returns what runs a subsystem, or nil for one there is none of.
// sftp is a program of the guest's, run as the user of the sandbox that the
// session is for: what it may read and write is decided inside.
func (s *session) subsystem(name string) func() {
	switch name {
	case APISubsystem:
		return s.runAPI
	case subsystemSFTP:
		return func() { s.run(subsystemSFTP, "") }
	}
	return nil
}
