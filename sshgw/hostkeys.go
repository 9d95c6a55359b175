package sshgw

import (
	"bytes"
	"crypto/rand"

	gossh "golang.org/x/crypto/ssh"
)

// maxProofs bounds the keys that one request may ask to be proven.
const maxProofs = 32

// handshakeKeys are the host keys that take part in handshakes: the first of
// each kind. Others are only announced, so that clients know them before they
// are used.
func handshakeKeys(all []gossh.Signer) []gossh.Signer {
	seen := map[string]bool{}
	var first []gossh.Signer
	for _, s := range all {
		if kind := s.PublicKey().Type(); !seen[kind] {
			seen[kind] = true
			first = append(first, s)
		}
	}
	return first
}

// plainKeys are the host keys that are no certificates.
func plainKeys(all []gossh.Signer) []gossh.Signer {
	var plain []gossh.Signer
	for _, s := range all {
		if _, is := s.PublicKey().(*gossh.Certificate); !is {
			plain = append(plain, s)
		}
	}
	return plain
}

// announce tells an authenticated client, once, all host keys there are. A
// client of OpenSSH (UpdateHostKeys) asks for proofs and notes the new ones, so
// that a key can be replaced without anybody being asked.
func (c *conn) announce(sc *gossh.ServerConn) {
	c.mu.Lock()
	told := c.announced || c.closed
	c.announced = true
	if !told {
		c.wg.Add(1)
	}
	c.mu.Unlock()
	if told {
		return
	}
	go func() {
		defer c.wg.Done()
		var payload []byte
		for _, s := range plainKeys(c.srv.hostKeys()) {
			payload = append(payload, gossh.Marshal(struct{ Key []byte }{s.PublicKey().Marshal()})...)
		}
		_, _, _ = sc.SendRequest("hostkeys-00@openssh.com", false, payload)
	}()
}

// proveHostKeys answers a request for proofs that the server holds the private
// halves of keys: a signature with each, in their order.
func (c *conn) proveHostKeys(sc *gossh.ServerConn, payload []byte) (bool, []byte) {
	var answer []byte
	for n := 0; len(payload) > 0; n++ {
		var next struct {
			Blob []byte
			Rest []byte `ssh:"rest"`
		}
		if n >= maxProofs || gossh.Unmarshal(payload, &next) != nil {
			return false, nil
		}
		sig := c.srv.proof(sc.SessionID(), next.Blob)
		if sig == nil {
			return false, nil
		}
		answer = append(answer, gossh.Marshal(struct{ Signature []byte }{gossh.Marshal(sig)})...)
		payload = next.Rest
	}
	return len(answer) > 0, answer
}

// proof signs the session id with the host key that has this wire form; nil when
// there is none.
func (s *Server) proof(session, blob []byte) *gossh.Signature {
	for _, signer := range plainKeys(s.hostKeys()) {
		if !bytes.Equal(signer.PublicKey().Marshal(), blob) {
			continue
		}
		data := gossh.Marshal(struct {
			Magic         string
			Session, Blob []byte
		}{"hostkeys-prove-00@openssh.com", session, blob})
		if as, ok := signer.(gossh.AlgorithmSigner); ok && signer.PublicKey().Type() == gossh.KeyAlgoRSA {
			sig, err := as.SignWithAlgorithm(rand.Reader, data, gossh.KeyAlgoRSASHA512)
			if err != nil {
				return nil
			}
			return sig
		}
		sig, err := signer.Sign(rand.Reader, data)
		if err != nil {
			return nil
		}
		return sig
	}
	return nil
}

// hostKeys are the host keys as they are now.
func (s *Server) hostKeys() []gossh.Signer {
	if all := s.identity.Load(); all != nil {
		return *all
	}
	return nil
}

// setIdentity makes host keys the ones that connections see from now on.
func (s *Server) setIdentity(signers []gossh.Signer) {
	s.identity.Store(&signers)
	for _, k := range handshakeKeys(signers) {
		s.ssh.AddHostKey(k)
	}
}
