package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// hostKeyFile is the name of the host key that is made when there is none.
const hostKeyFile = "ssh_host_ed25519_key"

// LoadOrCreateHostKeys returns the keys in dir by which the server proves who
// it is, the ed25519 key first. Every file ssh_host_*_key in the folder is one,
// in any form ssh-keygen writes without a passphrase, so that an existing
// server's keys can be moved in. An ed25519 key is made when there is none, and
// the folder with it; several processes that start at once agree on one key.
//
// A key file that others can read is refused: it proves nothing any more.
func LoadOrCreateHostKeys(dir string) ([]ssh.Signer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder of host keys: %w", err)
	}
	first := filepath.Join(dir, hostKeyFile)
	if _, err := os.Lstat(first); errors.Is(err, fs.ErrNotExist) {
		if err := createHostKey(first, "ed25519"); err != nil {
			return nil, fmt.Errorf("make host key: %w", err)
		}
	}
	paths, err := filepath.Glob(filepath.Join(escapeGlob(dir), "ssh_host_*_key"))
	if err != nil {
		return nil, fmt.Errorf("list host keys: %w", err)
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return p == first })
	var signers []ssh.Signer
	for _, path := range append([]string{first}, paths...) {
		signer, err := loadHostKey(path)
		if err != nil {
			return nil, err
		}
		signers = append(signers, signer)
	}
	return signers, nil
}

// KnownHostsLine returns the line for a client's known_hosts that trusts the
// key for the addresses ("host" or "host:port").
func KnownHostsLine(key ssh.PublicKey, addresses ...string) string {
	return knownhosts.Line(addresses, key)
}

func loadHostKey(path string) (ssh.Signer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read host key: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxLine {
		return nil, fmt.Errorf("the host key %s is not a key file", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the host key %s can be read by others (mode %04o): run chmod 600 %s, or delete it to get a new one",
			path, info.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read host key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if _, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		return nil, fmt.Errorf("the host key %s has a passphrase: remove it with ssh-keygen -p -f %s", path, path)
	}
	if err != nil {
		return nil, fmt.Errorf("the host key %s is damaged (%w): restore it, or delete it to get a new one", path, err)
	}
	if _, err := FromPublicKey(signer.PublicKey(), ""); err != nil {
		return nil, fmt.Errorf("the host key %s cannot be used: %w", path, err)
	}
	return signer, nil
}

// createHostKey makes a key at path unless there is one by now. The
// file appears complete or not at all, and has reached the disk when the
// function returns: a server whose clients have seen a key must not lose it.
func createHostKey(path, kind string) (err error) {
	private, err := generateHostKey(kind)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "sandgate")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-host-key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(pem.EncodeToMemory(block))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// A link, unlike a rename, never replaces the key of somebody faster.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(dir)
}

func generateHostKey(kind string) (crypto.PrivateKey, error) {
	switch kind {
	case "ecdsa":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		return rsa.GenerateKey(rand.Reader, 3072)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return private, err
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// escapeGlob makes a path a pattern that matches it alone.
func escapeGlob(path string) string {
	var b []byte
	for i := range len(path) {
		if c := path[i]; c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}
