package keys

import (
	"bytes"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/crypto/ssh"
)

// minRSABits is the smallest RSA key that is accepted.
const minRSABits = 2048

// maxComment bounds the comment of a key in bytes.
const maxComment = 256

// acceptedTypes are the types of key that can be registered.
var acceptedTypes = map[string]bool{
	ssh.KeyAlgoED25519:    true,
	ssh.KeyAlgoSKED25519:  true,
	ssh.KeyAlgoECDSA256:   true,
	ssh.KeyAlgoECDSA384:   true,
	ssh.KeyAlgoECDSA521:   true,
	ssh.KeyAlgoSKECDSA256: true,
	ssh.KeyAlgoRSA:        true,
}

// FromPublicKey makes the record of a public key. Fingerprint, Type, PublicKey
// and Comment are set; whose key it is, in what role and until when is the
// caller's. The error is a reason for a person: the key is weak or of a kind
// that is not accepted.
func FromPublicKey(pub ssh.PublicKey, comment string) (Key, error) {
	if reason := refusedType(pub.Type()); reason != nil {
		return Key{}, reason
	}
	if pub.Type() == ssh.KeyAlgoRSA {
		bits := rsaBits(pub)
		if bits < minRSABits {
			return Key{}, fmt.Errorf("an RSA key of %d bits is too weak: use at least %d, or make an ed25519 key (ssh-keygen -t ed25519)", bits, minRSABits)
		}
	}
	return Key{
		Fingerprint: ssh.FingerprintSHA256(pub),
		Type:        pub.Type(),
		PublicKey:   pub.Type() + " " + base64.StdEncoding.EncodeToString(pub.Marshal()),
		Comment:     cleanComment(comment),
	}, nil
}

// refusedType says why a type of key is not accepted; nil when it is.
func refusedType(keyType string) error {
	switch {
	case acceptedTypes[keyType]:
		return nil
	case strings.Contains(keyType, "-cert-v0"):
		return errors.New("a certificate is not accepted: give the plain public key it was made for")
	case keyType == "ssh-dss":
		return errors.New("a DSA key (ssh-dss) is too weak: make an ed25519 key (ssh-keygen -t ed25519)")
	}
	return fmt.Errorf("a key of type %q is not accepted: use ed25519, ecdsa, rsa, or one of the sk kinds", clip(keyType, 40))
}

func rsaBits(pub ssh.PublicKey) int {
	crypto, ok := pub.(ssh.CryptoPublicKey)
	if !ok {
		return 0
	}
	key, ok := crypto.CryptoPublicKey().(*rsa.PublicKey)
	if !ok {
		return 0
	}
	return key.N.BitLen()
}

// parseBlob reads the base64 part of a key, whose type was declared in front of it.
func parseBlob(declared, encoded string) (ssh.PublicKey, error) {
	if reason := refusedType(declared); reason != nil {
		return nil, reason
	}
	damaged := errors.New("the key is damaged: copy it again, as one unbroken line")
	blob, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, damaged
	}
	pub, err := ssh.ParsePublicKey(blob)
	if err != nil {
		return nil, damaged
	}
	if pub.Type() != declared {
		return nil, fmt.Errorf("the key says it is %q but holds one of type %q: copy it again", declared, clip(pub.Type(), 40))
	}
	// The fingerprint is taken of the canonical form, so there must be no
	// other form with the same fingerprint.
	if !bytes.Equal(pub.Marshal(), blob) {
		return nil, damaged
	}
	return pub, nil
}

// cleanComment makes a comment safe to show: printable and of bounded length.
func cleanComment(comment string) string {
	comment = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, strings.ReplaceAll(comment, "\t", " "))
	if len(comment) > maxComment {
		comment = strings.ToValidUTF8(comment[:maxComment], "") // not half a character
	}
	return strings.TrimSpace(comment)
}
