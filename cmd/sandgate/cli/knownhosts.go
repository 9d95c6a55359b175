package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// rememberHostKeys writes the host keys of the gateway at address into the
// client's own known_hosts, in the place of what it had for that address, and
// returns the file. The user's file is left alone.
func rememberHostKeys(dir, address string, hostKeys []string) (string, error) {
	path := filepath.Join(dir, "known_hosts")
	unusable := func(err error) error {
		return fault.Wrap(err, fault.Unavailable, "%s cannot be written: %v", path, err)
	}
	var lines []string
	for _, line := range hostKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return "", fault.Wrap(err, fault.Unavailable, "the server names a host key that is none")
		}
		lines = append(lines, keys.KnownHostsLine(key, address))
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", unusable(err)
	}
	var out bytes.Buffer
	for line := range strings.Lines(string(old)) {
		if host, _, _ := strings.Cut(line, " "); host != knownhosts.Normalize(address) && strings.TrimSpace(line) != "" {
			out.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	out.WriteString(strings.Join(lines, "\n") + "\n")
	if bytes.Equal(out.Bytes(), old) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", unusable(err)
	}
	// Written beside and renamed: another client may read it right now.
	tmp, err := os.CreateTemp(dir, ".known_hosts-")
	if err != nil {
		return "", unusable(err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(out.Bytes())
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", unusable(err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return "", unusable(err)
	}
	return path, nil
}
