package keys

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Certificate names a user certificate, with what it takes to ask later whether
// it is still good. It is a plain value; the zero value is none.
type Certificate struct {
	Authority string `json:"ca"`      // fingerprint of the key that signed it
	Key       string `json:"key"`     // fingerprint of the key it was made for
	KeySHA1   string `json:"keySha1"` // hex, as revocation lists have it
	Serial    uint64 `json:"serial"`
	ID        string `json:"id"` // what the authority called it; of any content
}

// The extensions of a certificate, and the options of the line of its
// authority, that say its scope: comma-separated lists as in NewScope.
const (
	scopeSandbox = "sandbox"
	scopeProject = "project"
	scopeVerbs   = "verbs"
	ownSuffix    = "@sandgate"
)

// The extensions of OpenSSH that are honoured. What is not there is not
// allowed.
const (
	permitPTY   = "permit-pty"
	permitPorts = "permit-port-forwarding"
	permitAgent = "permit-agent-forwarding"
)

// The critical options that are honoured.
const (
	forceCommand  = "force-command"
	sourceAddress = "source-address" // by the ssh library, from Permissions
)

// maxForced bounds a forced command in bytes.
const maxForced = 4096

// Authenticate returns the principal that a certificate stands for. The caller
// has proof that whoever is at the door holds the key it was made for, and
// enforces the critical option source-address. The error is a reason for a
// person.
func (t *Trust) Authenticate(cert *ssh.Certificate, door string, now time.Time) (Principal, error) {
	if cert.CertType != ssh.UserCert {
		return Principal{}, errors.New("it is a certificate of a host, not of a user")
	}
	authority, known := t.authority(ssh.FingerprintSHA256(cert.SignatureKey))
	if !known {
		return Principal{}, errors.New("its authority is not trusted here")
	}
	if cert.Signature == nil || !slices.Contains(signatureFormats, cert.Signature.Format) {
		return Principal{}, errors.New("its signature is of a kind that is too weak; sign it anew with a current ssh-keygen")
	}
	if _, err := FromPublicKey(cert.Key, ""); err != nil {
		return Principal{}, err
	}
	name, err := authority.choose(cert.ValidPrincipals)
	if err != nil {
		return Principal{}, err
	}
	if err := checkCertificate(cert, name, now); err != nil {
		return Principal{}, err
	}
	scope, err := authority.scope(cert)
	if err != nil {
		return Principal{}, err
	}
	p := Principal{
		ID: name, Role: authority.Role, Door: door, Scope: scope,
		KeyID:       "cert:" + ssh.FingerprintSHA256(cert.Key) + ":" + strconv.FormatUint(cert.Serial, 10),
		Certificate: certificateOf(cert),
		Limits:      SessionLimits{NoPTY: !has(cert, permitPTY), NoAgent: !has(cert, permitAgent), Command: cert.CriticalOptions[forceCommand]},
	}
	if cert.ValidBefore != ssh.CertTimeInfinity {
		p.Expires = time.Unix(int64(cert.ValidBefore), 0) // not negative: it was checked
	}
	return p, t.Recheck(p, now)
}

// Recheck says why the certificate of a principal is no longer good; nil when it
// is: not expired, of an authority that is still trusted with the same rights,
// and not revoked.
func (t *Trust) Recheck(p Principal, now time.Time) error {
	c := p.Certificate
	authority, known := t.authority(c.Authority)
	switch {
	case !known:
		return errors.New("its authority is not trusted any more")
	case !p.Expires.IsZero() && !now.Before(p.Expires):
		return errors.New("it has expired")
	case authority.Role != p.Role || !authority.admits(p.ID) || !authority.Scope.Contains(p.Scope):
		return errors.New("the rights of its authority have changed; connect again")
	}
	revoked, err := t.revocations()
	if err != nil {
		return err
	}
	if revoked.blob(authority.Key.Marshal()) || revoked.certificate(c) {
		return errors.New("it was revoked")
	}
	return nil
}

// CheckKey says why a plain public key, "ssh-ed25519 AAAA…", cannot be used:
// nil unless it is on the list of revoked keys, or that cannot be read.
func (t *Trust) CheckKey(line string) error {
	revoked, err := t.revocations()
	if err != nil || revoked == nil {
		return err
	}
	keyType, rest := cutField(line)
	encoded, _ := cutField(rest)
	pub, err := parseBlob(keyType, encoded)
	if err != nil {
		return err
	}
	if revoked.blob(pub.Marshal()) {
		return errors.New("it was revoked")
	}
	return nil
}

func certificateOf(cert *ssh.Certificate) Certificate {
	sum := sha1.Sum(cert.Key.Marshal())
	return Certificate{
		Authority: ssh.FingerprintSHA256(cert.SignatureKey), Key: ssh.FingerprintSHA256(cert.Key),
		KeySHA1: hex.EncodeToString(sum[:]), Serial: cert.Serial, ID: cert.KeyId,
	}
}

// signatureFormats are the signatures of authorities that are accepted: none
// with SHA-1.
var signatureFormats = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
	ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512,
}

// checkCertificate checks time, signature and critical options.
func checkCertificate(cert *ssh.Certificate, principal string, now time.Time) error {
	for option := range cert.CriticalOptions {
		if option != forceCommand && option != sourceAddress {
			return fmt.Errorf("it demands %q, which this server does not know", clip(option, 64))
		}
	}
	if forced, is := cert.CriticalOptions[forceCommand]; is && (strings.TrimSpace(forced) == "" || len(forced) > maxForced || strings.ContainsRune(forced, 0)) {
		return errors.New("the command it forces cannot be run")
	}
	unix := now.Unix()
	switch {
	case int64(cert.ValidAfter) < 0 || unix < int64(cert.ValidAfter):
		return errors.New("it is not valid yet")
	case cert.ValidBefore != ssh.CertTimeInfinity && (int64(cert.ValidBefore) < 0 || unix >= int64(cert.ValidBefore)):
		return errors.New("it has expired")
	}
	checker := &ssh.CertChecker{
		SupportedCriticalOptions: []string{forceCommand, sourceAddress},
		Clock:                    func() time.Time { return now },
	}
	if err := checker.CheckCert(principal, cert); err != nil {
		return errors.New("its signature is not good")
	}
	return nil
}

func has(cert *ssh.Certificate, extension string) bool {
	_, ok := cert.Extensions[extension]
	return ok
}

// choose returns the first principal of a certificate that the authority may
// speak for and that can be one here.
func (a *Authority) choose(principals []string) (string, error) {
	if len(principals) == 0 {
		return "", errors.New("it names no principal, so it could be anybody's; sign it with ssh-keygen -n NAME")
	}
	for _, name := range principals {
		if ValidPrincipal(name) && name != LocalPrincipal && a.admits(name) {
			return name, nil
		}
	}
	return "", errors.New("none of its principals is a user here, or its authority does not speak for them")
}

func (a *Authority) admits(principal string) bool {
	return len(a.Principals) == 0 || slices.Contains(a.Principals, principal)
}

// scope is what the certificate may be used for, within what its authority may
// give.
func (a *Authority) scope(cert *ssh.Certificate) (Scope, error) {
	list := func(name string) []string {
		if v := cert.Extensions[name+ownSuffix]; v != "" {
			return strings.Split(v, ",")
		}
		return nil
	}
	for _, name := range []string{scopeSandbox, scopeProject, scopeVerbs} {
		if v, is := cert.Extensions[name+ownSuffix]; is && v == "" {
			return Scope{}, fmt.Errorf("its %s is empty", name+ownSuffix)
		}
	}
	own, field, err := NewScope(list(scopeSandbox), list(scopeProject), list(scopeVerbs), !has(cert, permitPorts))
	if err != nil {
		return Scope{}, fmt.Errorf("its %s: %w", field+ownSuffix, err)
	}
	own = a.Scope.Inherit(own)
	if !a.Scope.Contains(own) {
		return Scope{}, errors.New("its scope goes beyond that of its authority")
	}
	return own, nil
}
