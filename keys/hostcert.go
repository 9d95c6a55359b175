package keys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"
)

// certSuffix makes the name of a key's certificate of that of the key.
const certSuffix = "-cert.pub"

// WithHostCertificates returns host keys together with the certificates that lie
// beside them in dir (ssh_host_ed25519_key-cert.pub), as ssh-keygen -s writes
// them, certificates first. One that is damaged, not of a host, of another key
// or not valid now is an error: clients would refuse it.
func WithHostCertificates(dir string, signers []ssh.Signer, now time.Time) ([]ssh.Signer, error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(dir), "ssh_host_*_key"+certSuffix))
	if err != nil {
		return nil, fmt.Errorf("list host certificates: %w", err)
	}
	var certified []ssh.Signer
	for _, path := range paths {
		cert, err := ReadHostCertificate(path, now)
		if err != nil {
			return nil, fmt.Errorf("the host certificate %s cannot be used: %w", path, err)
		}
		signer, err := certify(cert, signers)
		if err != nil {
			return nil, fmt.Errorf("the host certificate %s cannot be used: %w", path, err)
		}
		certified = append(certified, signer)
	}
	return append(certified, signers...), nil
}

// ReadHostCertificate reads the certificate of a host key that is valid now.
func ReadHostCertificate(path string, now time.Time) (*ssh.Certificate, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, plain(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxLine {
		return nil, errors.New("it is not a certificate file")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, plain(err)
	}
	pub, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, errors.New("it is damaged")
	}
	cert, is := pub.(*ssh.Certificate)
	switch unix := now.Unix(); {
	case !is:
		return nil, errors.New("it is a plain key, no certificate")
	case cert.CertType != ssh.HostCert:
		return nil, errors.New("it is a certificate of a user; sign it with ssh-keygen -h")
	case int64(cert.ValidAfter) < 0 || unix < int64(cert.ValidAfter):
		return nil, errors.New("it is not valid yet")
	case cert.ValidBefore != ssh.CertTimeInfinity && (int64(cert.ValidBefore) < 0 || unix >= int64(cert.ValidBefore)):
		return nil, errors.New("it has expired; have it signed anew, or remove it")
	}
	return cert, nil
}

// certify finds the key a certificate was made for.
func certify(cert *ssh.Certificate, signers []ssh.Signer) (ssh.Signer, error) {
	for _, s := range signers {
		if ssh.FingerprintSHA256(s.PublicKey()) != ssh.FingerprintSHA256(cert.Key) {
			continue
		}
		if as, ok := s.(ssh.AlgorithmSigner); ok && s.PublicKey().Type() == ssh.KeyAlgoRSA {
			sha2, err := ssh.NewSignerWithAlgorithms(as, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
			if err != nil {
				return nil, err
			}
			s = sha2
		}
		return ssh.NewCertSigner(cert, s)
	}
	return nil, errors.New("it was made for another key")
}

// HostKeyFile is one host key on the disk.
type HostKeyFile struct {
	Path string
	Key  ssh.PublicKey
	// Next is a key that is announced to clients and not used yet.
	Next        bool
	Certificate string // path; empty without
}

// HostKeyFiles lists the host keys in dir, in the order of LoadOrCreateHostKeys.
func HostKeyFiles(dir string) ([]HostKeyFile, error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(dir), "ssh_host_*_key"))
	if err != nil {
		return nil, fmt.Errorf("list host keys: %w", err)
	}
	var all []HostKeyFile
	for _, path := range paths {
		signer, err := loadHostKey(path)
		if err != nil {
			return nil, err
		}
		f := HostKeyFile{Path: path, Key: signer.PublicKey(), Next: isNext(path)}
		if exists(path + certSuffix) {
			f.Certificate = path + certSuffix
		}
		all = append(all, f)
	}
	return all, nil
}

// HostKeyKinds are the kinds of host keys that can be made.
func HostKeyKinds() []string { return []string{"ed25519", "ecdsa", "rsa"} }

const nextSuffix = "_next_key"

func isNext(path string) bool {
	return len(path) > len(nextSuffix) && path[len(path)-len(nextSuffix):] == nextSuffix
}

func hostKeyPath(dir, kind string, next bool) string {
	if next {
		return filepath.Join(dir, "ssh_host_"+kind+nextSuffix)
	}
	return filepath.Join(dir, "ssh_host_"+kind+"_key")
}

// AddHostKey makes a host key of a kind there is none of yet, or, with next, the
// one that takes the place of the present one: it is announced to clients from
// then on, and used after RetireHostKey. It returns the path.
func AddHostKey(dir, kind string, next bool) (string, error) {
	path := hostKeyPath(dir, kind, next)
	if next && !exists(hostKeyPath(dir, kind, false)) {
		return "", fmt.Errorf("there is no %s host key to be replaced", kind)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if next {
			return "", fmt.Errorf("the next %s host key is there already; retire the old one first", kind)
		}
		return "", fmt.Errorf("there is a %s host key already; replace it with rotate", kind)
	}
	return path, createHostKey(path, kind)
}

// RetireHostKey puts the next host key of a kind in the place of the present
// one, which is kept under another name. It returns that name.
func RetireHostKey(dir, kind string, now time.Time) (string, error) {
	current, next := hostKeyPath(dir, kind, false), hostKeyPath(dir, kind, true)
	if !exists(next) {
		return "", fmt.Errorf("there is no next %s host key; make one with rotate, and leave clients some days to learn it", kind)
	}
	stamp := ".retired-" + now.UTC().Format("20060102-150405")
	retired := current + stamp
	// The present key is gone only once the next is in its place: a crash
	// between the two leaves both names with a key.
	if err := os.Link(current, retired); err != nil {
		return "", plain(err)
	}
	if err := os.Rename(next, current); err != nil {
		return "", plain(err)
	}
	if exists(current + certSuffix) {
		if err := os.Rename(current+certSuffix, retired+certSuffix); err != nil {
			return "", plain(err)
		}
	}
	if exists(next + certSuffix) {
		if err := os.Rename(next+certSuffix, current+certSuffix); err != nil {
			return "", plain(err)
		}
	}
	return retired, syncFolder(dir)
}
