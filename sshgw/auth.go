package sshgw

import (
	"context"
	"errors"
	"fmt"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// The extensions of gossh.Permissions that carry the identity.
const (
	extPrincipal = "principal@sandgate"
	extRole      = "role@sandgate"
	extKey       = "key@sandgate"
	extExpires   = "expires@sandgate" // RFC 3339; absent: never
)

var errRefused = errors.New("key refused")

// permissions packs an identity.
func permissions(p keys.Principal) *gossh.Permissions {
	ext := map[string]string{extPrincipal: p.ID, extRole: string(p.Role), extKey: p.KeyID}
	if !p.Expires.IsZero() {
		ext[extExpires] = p.Expires.UTC().Format(time.RFC3339Nano)
	}
	return &gossh.Permissions{Extensions: ext}
}

// principalOf unpacks the identity a connection has proven. ok is false where
// there is none.
func principalOf(perms *gossh.Permissions) (p keys.Principal, ok bool) {
	if perms == nil || perms.Extensions[extPrincipal] == "" {
		return keys.Principal{}, false
	}
	p = keys.Principal{
		ID:    perms.Extensions[extPrincipal],
		Role:  keys.Role(perms.Extensions[extRole]),
		KeyID: perms.Extensions[extKey],
		Door:  "ssh",
	}
	if at := perms.Extensions[extExpires]; at != "" {
		var err error
		if p.Expires, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return keys.Principal{}, false
		}
	}
	return p, true
}

// serverConfig is the configuration of the handshake of one connection.
func (c *conn) serverConfig() *gossh.ServerConfig {
	return &gossh.ServerConfig{
		Config: gossh.Config{
			KeyExchanges: keyExchanges(),
			Ciphers:      chooseCiphers(c.wire.offer, c.srv.fastAES),
			MACs:         macs(c.srv.cfg.Compat),
		},
		PublicKeyAuthAlgorithms: userKeyAlgorithms(),
		MaxAuthTries:            c.srv.cfg.Limits.AuthTries,
		PublicKeyCallback: func(_ gossh.ConnMetadata, key gossh.PublicKey) (*gossh.Permissions, error) {
			return c.offered(key)
		},
		VerifiedPublicKeyCallback: func(m gossh.ConnMetadata, _ gossh.PublicKey, perms *gossh.Permissions, _ string) (*gossh.Permissions, error) {
			return perms, c.proven(m, perms)
		},
	}
}

// offered looks up a key that the client says it has. It decides whether a
// signature is worth asking for and has no other effect.
func (c *conn) offered(key gossh.PublicKey) (*gossh.Permissions, error) {
	if _, is := key.(*gossh.Certificate); is {
		return nil, c.refuse("", "sandgate: certificates are not accepted; offer the plain key (ssh -o CertificateFile=none)")
	}
	fingerprint := gossh.FingerprintSHA256(key)
	p, err := c.srv.cfg.Authenticate(c.ctx, key)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, c.refuse(fingerprint, fmt.Sprintf(
			"sandgate: this key is not registered: %s\nsandgate: ask an admin to run: sandgate key add <file with your public key>", fingerprint))
	case err != nil:
		c.log.Warn("ssh key lookup", "key", fingerprint, "err", err)
		return nil, c.refuse(fingerprint, sayError(err)+" ("+fingerprint+")")
	case p.ID == "":
		return nil, errRefused
	}
	return permissions(p), nil
}

// refuse makes the error for a key, with a message for the client if it has
// not had one yet. A key that was seen to be one of several of somebody who
// got in with another is refused silently: agents offer all they hold.
func (c *conn) refuse(fingerprint, message string) error {
	if fingerprint != "" {
		c.refused = append(c.refused, fingerprint)
		if c.srv.companions.has(fingerprint) {
			return errRefused
		}
	}
	if c.bannered {
		return errRefused
	}
	c.bannered = true
	return &gossh.BannerError{Err: errRefused, Message: message + "\n"}
}

// proven is called once the client has signed with an accepted key: the
// connection is authenticated from here on.
func (c *conn) proven(m gossh.ConnMetadata, perms *gossh.Permissions) error {
	p, ok := principalOf(perms)
	if !ok {
		return errRefused
	}
	c.authenticated()
	c.srv.companions.add(c.refused)
	if c.holder == "" {
		c.holder, c.overLimit = p.ID, c.srv.claim(p.ID)
	}
	if c.srv.cfg.Proven != nil {
		ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.Limits.Handshake)
		defer cancel()
		c.srv.cfg.Proven(ctx, p)
	}
	c.log.Info("ssh authenticated", "user", quoted(m.User()), "principal", p.ID, "key", p.KeyID,
		"client", quoted(string(m.ClientVersion())), "took", c.srv.cfg.Now().Sub(c.began))
	return nil
}
