package keys

import (
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"golang.org/x/crypto/ssh"
)

// A KRL is the binary form of a list of revoked keys that ssh-keygen -k writes,
// described in PROTOCOL.krl of OpenSSH. Numbers are big-endian; a string is its
// length in 32 bits and its bytes.

// krlMagic begins every KRL.
const krlMagic = "SSHKRL\n\x00"

// Kinds of sections, and of sections inside that of certificates.
const (
	krlCertificates = 1
	krlKeys         = 2
	krlSHA1         = 3
	krlSignature    = 4
	krlSHA256       = 5
	krlExtension    = 255

	krlSerialList   = 0x20
	krlSerialRange  = 0x21
	krlSerialBitmap = 0x22
	krlKeyID        = 0x23
	krlCertExtra    = 0x39
)

// maxBitmap bounds a bitmap of serial numbers in bytes, as OpenSSH does.
const maxBitmap = 0x400 * 8

var errKRL = errors.New("the KRL is damaged; make it anew with ssh-keygen -k")

// krlReader reads the parts of a KRL. After the first that is cut short all
// others are empty, and err says so.
type krlReader struct {
	rest []byte
	err  error
}

func (r *krlReader) bytes(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.rest)) {
		r.err = errKRL
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *krlReader) number(size uint64) (n uint64) {
	for _, b := range r.bytes(size) {
		n = n<<8 | uint64(b)
	}
	return n
}

func (r *krlReader) text() []byte { return r.bytes(r.number(4)) }

func (r *krlReader) more() bool { return r.err == nil && len(r.rest) > 0 }

// parseKRL adds what a KRL says.
func (r *Revocations) parseKRL(text []byte) error {
	in := &krlReader{rest: text[len(krlMagic):]}
	if version := in.number(4); in.err == nil && version != 1 {
		return fmt.Errorf("the KRL is of version %d, which is not known", version)
	}
	in.bytes(3 * 8) // its number, when it was made, flags
	in.text()       // reserved
	in.text()       // comment
	for in.more() {
		kind := in.number(1)
		if kind == krlSignature {
			return errors.New("the KRL is signed, which is not supported; make it anew with a current ssh-keygen -k")
		}
		section := &krlReader{rest: in.text()}
		if in.err != nil {
			break
		}
		if err := r.krlSection(kind, section); err != nil {
			return err
		}
	}
	return in.err
}

func (r *Revocations) krlSection(kind uint64, in *krlReader) error {
	switch kind {
	case krlCertificates:
		return r.krlCerts(in)
	case krlExtension:
		return krlExtensionOf(in)
	case krlKeys, krlSHA1, krlSHA256:
	default:
		return fmt.Errorf("the KRL has a section of kind %d, which is not known", kind)
	}
	for in.more() {
		entry := in.text()
		if in.err != nil {
			break
		}
		var err error
		switch {
		case kind == krlKeys:
			err = r.addHash(sha256.Sum256(entry))
		case kind == krlSHA256 && len(entry) == sha256.Size:
			err = r.addHash([sha256.Size]byte(entry))
		case kind == krlSHA1 && len(entry) == sha1.Size:
			r.keys1[[sha1.Size]byte(entry)] = struct{}{}
			err = r.take()
		default:
			err = errKRL
		}
		if err != nil {
			return err
		}
	}
	return in.err
}

// krlExtensionOf skips an extension, unless it says that it must be understood.
func krlExtensionOf(in *krlReader) error {
	in.text()
	critical := in.number(1)
	in.text()
	if in.err == nil && critical != 0 {
		return errors.New("the KRL has an extension that is not known and must be")
	}
	return in.err
}

// krlCerts reads what is revoked of one authority, or of all when it names none.
func (r *Revocations) krlCerts(in *krlReader) error {
	authority := ""
	if blob := in.text(); len(blob) > 0 {
		key, err := ssh.ParsePublicKey(blob)
		if err != nil {
			return errKRL
		}
		authority = ssh.FingerprintSHA256(key)
	}
	in.text() // reserved
	for in.more() {
		kind := in.number(1)
		part := &krlReader{rest: in.text()}
		if in.err != nil {
			break
		}
		if err := r.krlCertPart(authority, kind, part); err != nil {
			return err
		}
	}
	return in.err
}

func (r *Revocations) krlCertPart(authority string, kind uint64, in *krlReader) error {
	switch kind {
	case krlSerialList:
		for in.more() {
			n := in.number(8)
			if in.err != nil {
				break
			}
			if err := r.addSerials(authority, span{n, n}); err != nil {
				return err
			}
		}
	case krlSerialRange:
		s := span{in.number(8), in.number(8)}
		if in.err != nil || s.high < s.low || in.more() {
			return errKRL
		}
		return r.addSerials(authority, s)
	case krlSerialBitmap:
		return r.krlBitmap(authority, in)
	case krlKeyID:
		for in.more() {
			id := in.text()
			if in.err != nil {
				break
			}
			if err := r.addID(authority, string(id)); err != nil {
				return err
			}
		}
	case krlCertExtra:
		return krlExtensionOf(in)
	default:
		return fmt.Errorf("the KRL has a section of certificates of kind %#x, which is not known", kind)
	}
	return in.err
}

// krlBitmap reads serial numbers as the bits of a big number, counted from an
// offset.
func (r *Revocations) krlBitmap(authority string, in *krlReader) error {
	offset := in.number(8)
	bitmap := in.text()
	if in.err != nil || in.more() || len(bitmap) > maxBitmap+1 {
		return errKRL
	}
	if top := uint64(len(bitmap)) * 8; offset+top < offset {
		return errKRL // beyond the last serial number
	}
	for i, bits8 := range slices.Backward(bitmap) {
		base := offset + uint64(len(bitmap)-1-i)*8
		for b := bits8; b != 0; b &= b - 1 {
			n := base + uint64(bits.TrailingZeros8(b))
			if err := r.addSerials(authority, span{n, n}); err != nil {
				return err
			}
		}
	}
	return nil
}
