package keys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// maxRevoked bounds a file of revoked keys in bytes.
const maxRevoked = 16 << 20

// Trust is whom the server believes besides its own list of keys: the
// authorities whose user certificates open the door, and the keys and
// certificates that were revoked. It is safe for concurrent use.
type Trust struct {
	authorityFile, revokedFile string

	mu          sync.Mutex
	authorities map[string]Authority // by fingerprint
	revoked     *Revocations         // nil: nothing is
	seen        fs.FileInfo          // of the file of revoked keys as it was read
	broken      error                // why it could not be
}

// OpenTrust reads a file of authorities and one of revoked keys; an empty name
// is none. The error names the file and is for a person.
func OpenTrust(authorityFile, revokedFile string) (*Trust, error) {
	t := &Trust{authorityFile: authorityFile, revokedFile: revokedFile}
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads both files again. After an error the authorities are as they
// were.
func (t *Trust) Reload() error {
	authorities, err := readAuthorities(t.authorityFile)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.authorities = authorities
	t.seen = nil
	return t.reread()
}

// Authorities counts the authorities that are trusted.
func (t *Trust) Authorities() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.authorities)
}

func readAuthorities(path string) (map[string]Authority, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, plain(err))
	}
	defer f.Close()
	all, err := ParseAuthorities(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	byFingerprint := map[string]Authority{}
	for _, a := range all {
		byFingerprint[a.Fingerprint] = a
	}
	return byFingerprint, nil
}

func (t *Trust) authority(fingerprint string) (Authority, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, ok := t.authorities[fingerprint]
	return a, ok
}

// revocations returns what is revoked, as the file says now; nil for nothing. A
// file that is gone or damaged lets nobody in: what it said is not known.
func (t *Trust) revocations() (*Revocations, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.reread(); err != nil {
		return nil, errors.New("the list of revoked keys cannot be read; tell an admin")
	}
	return t.revoked, nil
}

// reread reads the file of revoked keys if it is not the one that was read
// last. The caller holds mu.
func (t *Trust) reread() error {
	if t.revokedFile == "" {
		return nil
	}
	info, err := os.Stat(t.revokedFile)
	if err != nil {
		t.seen = nil
		return fmt.Errorf("%s: %w", t.revokedFile, plain(err))
	}
	if t.seen != nil && os.SameFile(t.seen, info) && t.seen.Size() == info.Size() && t.seen.ModTime().Equal(info.ModTime()) {
		return t.broken
	}
	t.seen = info
	t.revoked, t.broken = readRevocations(t.revokedFile)
	return t.broken
}

func readRevocations(path string) (*Revocations, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, plain(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRevoked+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, plain(err))
	}
	if len(text) > maxRevoked {
		return nil, fmt.Errorf("%s: more than %d MiB", path, maxRevoked>>20)
	}
	r, err := ParseRevocations(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
