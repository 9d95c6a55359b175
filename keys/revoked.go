package keys

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// maxRevocations bounds the entries of a file of revoked keys.
const maxRevocations = 1 << 20

// Revocations are keys and certificates that are not good any more. A nil one
// has none.
type Revocations struct {
	keys  map[[sha256.Size]byte]struct{} // by the hash of their wire form
	keys1 map[[sha1.Size]byte]struct{}
	certs map[string]*revokedCerts // by the fingerprint of the authority; "": of any
	count int
}

// revokedCerts are the certificates of one authority that are revoked.
type revokedCerts struct {
	serials []span
	ids     map[string]struct{}
}

// span is a range of serial numbers, both ends included.
type span struct{ low, high uint64 }

// ParseRevocations reads a list of what is revoked, in one of two forms. A KRL
// is what ssh-keygen -k writes. Otherwise it is text with one of these on each
// line, as ssh-keygen -k reads it:
//
//	ssh-ed25519 AAAA…       a public key, also one of an authority; or a certificate
//	serial: 7, serial: 7-9  certificates of any authority by their serial number
//	id: NAME                certificates of any authority by their key id
//	hash: SHA256:…          a public key by its fingerprint
//
// Whatever is not understood is an error: a key must not stay good because its
// line was misspelt.
func ParseRevocations(text []byte) (*Revocations, error) {
	r := &Revocations{
		keys: map[[sha256.Size]byte]struct{}{}, keys1: map[[sha1.Size]byte]struct{}{}, certs: map[string]*revokedCerts{},
	}
	if bytes.HasPrefix(text, []byte(krlMagic)) {
		return r, r.parseKRL(text)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := r.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return r, nil
}

func (r *Revocations) line(line string) error {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch strings.ToLower(name) {
	case "serial":
		low, high, isRange := strings.Cut(value, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.ParseUint(strings.TrimSpace(low), 0, 64)
		if err != nil {
			return errors.New("not a serial number")
		}
		to, err := strconv.ParseUint(strings.TrimSpace(high), 0, 64)
		if err != nil || to < from {
			return errors.New("not a range of serial numbers")
		}
		return r.addSerials("", span{from, to})
	case "id":
		if value == "" {
			return errors.New("the id is missing")
		}
		return r.addID("", value)
	case "hash":
		sum, ok := sha256Of(value)
		if !ok {
			return errors.New("not a fingerprint (SHA256:…)")
		}
		return r.addHash(sum)
	}
	keyType, rest := cutField(line)
	encoded, _ := cutField(rest)
	if !namesKeyType(keyType) {
		return errors.New("neither a public key nor a serial, an id or a hash")
	}
	blob, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return errors.New("the key is damaged")
	}
	pub, err := ssh.ParsePublicKey(blob) // weak ones too: they may be registered elsewhere
	if err != nil {
		return errors.New("the key is damaged")
	}
	cert, isCert := pub.(*ssh.Certificate)
	switch {
	case !isCert:
		return r.addHash(sha256.Sum256(pub.Marshal()))
	case cert.Serial != 0:
		return r.addSerials(ssh.FingerprintSHA256(cert.SignatureKey), span{cert.Serial, cert.Serial})
	}
	return r.addID(ssh.FingerprintSHA256(cert.SignatureKey), cert.KeyId)
}

// take counts an entry.
func (r *Revocations) take() error {
	if r.count++; r.count > maxRevocations {
		return fmt.Errorf("more than %d entries", maxRevocations)
	}
	return nil
}

func (r *Revocations) addHash(sum [sha256.Size]byte) error {
	r.keys[sum] = struct{}{}
	return r.take()
}

func (r *Revocations) of(authority string) *revokedCerts {
	c := r.certs[authority]
	if c == nil {
		c = &revokedCerts{ids: map[string]struct{}{}}
		r.certs[authority] = c
	}
	return c
}

func (r *Revocations) addSerials(authority string, s span) error {
	c := r.of(authority)
	if n := len(c.serials); n > 0 && c.serials[n-1].high+1 == s.low && s.low != 0 { // one after the other
		c.serials[n-1].high = s.high
		return nil
	}
	c.serials = append(c.serials, s)
	return r.take()
}

func (r *Revocations) addID(authority, id string) error {
	r.of(authority).ids[id] = struct{}{}
	return r.take()
}

// blob reports whether a key, in its wire form, is revoked.
func (r *Revocations) blob(blob []byte) bool {
	if r == nil {
		return false
	}
	_, by256 := r.keys[sha256.Sum256(blob)]
	_, by1 := r.keys1[sha1.Sum(blob)]
	return by256 || by1
}

// certificate reports whether a certificate, or its key, is revoked.
func (r *Revocations) certificate(c Certificate) bool {
	if r == nil {
		return false
	}
	if sum, ok := sha256Of(c.Key); ok {
		if _, is := r.keys[sum]; is {
			return true
		}
	}
	var sum [sha1.Size]byte
	if n, err := hex.Decode(sum[:], []byte(c.KeySHA1)); err == nil && n == len(sum) {
		if _, is := r.keys1[sum]; is {
			return true
		}
	}
	for _, authority := range []string{"", c.Authority} {
		if certs := r.certs[authority]; certs != nil && certs.has(c) {
			return true
		}
	}
	return false
}

func (c *revokedCerts) has(cert Certificate) bool {
	if _, is := c.ids[cert.ID]; is {
		return true
	}
	if cert.Serial == 0 { // what an authority that counts nothing gives to all
		return false
	}
	for _, s := range c.serials {
		if s.low <= cert.Serial && cert.Serial <= s.high {
			return true
		}
	}
	return false
}

// sha256Of reads a fingerprint, "SHA256:…".
func sha256Of(fingerprint string) (sum [sha256.Size]byte, ok bool) {
	encoded, ok := strings.CutPrefix(fingerprint, "SHA256:")
	if !ok || len(encoded) > 44 {
		return sum, false
	}
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	if err != nil || len(raw) != len(sum) {
		return sum, false
	}
	return [sha256.Size]byte(raw), true
}
