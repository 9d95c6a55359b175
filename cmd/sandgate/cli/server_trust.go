package cli

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// trustConfig says whom the server believes besides its own list of keys.
type trustConfig struct {
	authorities string // file of certificate authorities; empty: none
	revoked     string // file of revoked keys; empty: none
}

// openTrust reads the files, now and with every reload.
func (s *server) openTrust() (*keys.Trust, error) {
	c := s.cfg.trust
	if c == (trustConfig{}) {
		return nil, nil
	}
	trust, err := keys.OpenTrust(c.authorities, c.revoked)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "%v", err)
	}
	what, path := "certificate authorities", c.authorities
	switch {
	case path == "":
		what, path = "revoked keys", c.revoked
	case c.revoked != "":
		what, path = what+" and revoked keys", path+" and "+c.revoked
	}
	s.canReload(what, path, func(context.Context) (string, error) {
		if err := trust.Reload(); err != nil || c.authorities == "" {
			return "", err
		}
		return fmt.Sprintf("%d trusted", trust.Authorities()), nil
	})
	return trust, nil
}

// shownKeys are host keys together with their certificates, as clients see them.
func (s *server) shownKeys(all []ssh.Signer) ([]ssh.Signer, error) {
	return keys.WithHostCertificates(s.cfg.state.hostKeys(), all, time.Now())
}
