package sshgw

import (
	"context"
	"errors"
	"fmt"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// principalKey finds the identity in gossh.Permissions, which belong to the key
// that was proven and to no other.
type principalKey struct{}

// noTouch is the extension by which the ssh library accepts the signature of a
// security key that nobody has touched.
const noTouch = "no-touch-required"

var errRefused = errors.New("key refused")

// permissions packs an identity.
func permissions(p keys.Principal) *gossh.Permissions {
	return &gossh.Permissions{ExtraData: map[any]any{principalKey{}: p}}
}

// principalOf unpacks the identity a connection has proven. ok is false where
// there is none.
func principalOf(perms *gossh.Permissions) (p keys.Principal, ok bool) {
	if perms == nil {
		return keys.Principal{}, false
	}
	p, ok = perms.ExtraData[principalKey{}].(keys.Principal)
	if !ok || p.ID == "" {
		return keys.Principal{}, false
	}
	p.Door = "ssh"
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
		PublicKeyCallback: func(m gossh.ConnMetadata, key gossh.PublicKey) (*gossh.Permissions, error) {
			return c.offered(m.User(), key)
		},
		VerifiedPublicKeyCallback: func(m gossh.ConnMetadata, _ gossh.PublicKey, perms *gossh.Permissions, _ string) (*gossh.Permissions, error) {
			return perms, c.proven(m, perms)
		},
	}
}

// offer is a key that was offered, by its fingerprint, and for which user name.
type offer struct{ user, key string }

// offered looks up a key that the client says it has. It decides whether a
// signature is worth asking for and has no other effect.
func (c *conn) offered(user string, key gossh.PublicKey) (*gossh.Permissions, error) {
	if cert, is := key.(*gossh.Certificate); is {
		c.offer = offer{user, gossh.FingerprintSHA256(cert.Key)}
		return c.offeredCertificate(cert)
	}
	fingerprint := gossh.FingerprintSHA256(key)
	c.offer = offer{user, fingerprint}
	p, err := c.srv.cfg.Authenticate(c.ctx, key)
	switch {
	case c.joins(user) && (fault.Is(err, fault.NotFound) || err == nil && p.ID != ""):
		return c.mayJoin(key, p)
	case fault.Is(err, fault.NotFound):
		help := ""
		if c.srv.cfg.Join != nil {
			help = "\nsandgate: or, if you were given an invitation code, type: ssh " + joinUser + "@<this gateway>"
		}
		return nil, c.refuse(fingerprint, fmt.Sprintf(
			"sandgate: this key is not registered: %s\nsandgate: ask an admin to run: sandgate key add <file with your public key>%s", fingerprint, help))
	case err != nil:
		c.log.Warn("ssh key lookup", "key", fingerprint, "err", err)
		return nil, c.refuse(fingerprint, sayError(err)+" ("+fingerprint+")")
	case p.ID == "":
		return nil, errRefused
	}
	if err := c.mayJump(p); err != nil {
		return nil, c.refuse(fingerprint, sayError(err))
	}
	perms := permissions(p)
	if p.NoTouch {
		perms.Extensions = map[string]string{noTouch: ""}
	}
	return perms, nil
}

// offeredCertificate does the same for a certificate. Where it may be used from
// is for the ssh library to check.
func (c *conn) offeredCertificate(cert *gossh.Certificate) (*gossh.Permissions, error) {
	if c.srv.cfg.Certificate == nil {
		return nil, c.refuse("", "sandgate: certificates are not accepted; offer the plain key (ssh -o CertificateFile=none)")
	}
	p, err := c.srv.cfg.Certificate(c.ctx, cert)
	if err == nil && p.ID != "" {
		err = c.mayJump(p)
	}
	switch {
	case err != nil:
		c.log.Info("ssh certificate refused", "key", gossh.FingerprintSHA256(cert.Key), "serial", cert.Serial, "id", quoted(cert.KeyId), "err", quoted(err.Error()))
		// Clients offer the plain key first: what was said of it does not keep
		// the reason back that matters.
		if !c.certified {
			c.certified, c.bannered = true, false
		}
		return nil, c.refuse("", sayError(err))
	case p.ID == "":
		return nil, errRefused
	}
	perms := permissions(p)
	if from, is := cert.CriticalOptions["source-address"]; is {
		perms.CriticalOptions = map[string]string{"source-address": from}
	}
	return perms, nil
}

// refuse makes the error for a key, with a message for the client if it has
// not had one yet. A key that was seen to be one of several of somebody who
// got in with another is refused silently: agents offer all they hold.
func (c *conn) refuse(fingerprint, message string) error {
	c.turned = message
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
	if _, joins := joinerOf(perms); joins {
		c.extend(joinTime)
		return nil
	}
	p, ok := principalOf(perms)
	if !ok || c.mayJump(p) != nil {
		return errRefused
	}
	c.authenticated()
	c.srv.companions.add(c.refused)
	if c.holder == "" {
		c.holder, c.overLimit = p.ID, c.srv.claim(p.ID)
	}
	c.identify(m, p)
	if c.srv.cfg.Proven != nil {
		ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.Limits.Handshake)
		defer cancel()
		c.srv.cfg.Proven(ctx, p)
	}
	c.log.Info("ssh authenticated", "user", quoted(m.User()), "principal", p.ID, "key", p.KeyID,
		"client", quoted(string(m.ClientVersion())), "took", c.srv.cfg.Now().Sub(c.began))
	return nil
}
