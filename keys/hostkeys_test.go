package keys_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
)

func hostKeys(t *testing.T, dir string) []ssh.Signer {
	t.Helper()
	signers, err := keys.LoadOrCreateHostKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	return signers
}

func TestHostKeysAreStable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state [1]", "hostkeys")
	first := hostKeys(t, dir)
	second := hostKeys(t, dir)
	if len(first) != 1 || len(second) != 1 || first[0].PublicKey().Type() != ssh.KeyAlgoED25519 {
		t.Fatalf("got %d and %d keys", len(first), len(second))
	}
	if !bytes.Equal(first[0].PublicKey().Marshal(), second[0].PublicKey().Marshal()) {
		t.Error("the host key has changed")
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "ssh_host_ed25519_key"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
	onlyFile(t, dir)
}

// onlyFile fails the test when more than the key is in the folder.
func onlyFile(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v), want one key", entries, err)
	}
}

func TestHostKeysOfManyStarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hostkeys")
	found := make([]string, 8)
	var wg sync.WaitGroup
	for i := range found {
		wg.Go(func() {
			signers, err := keys.LoadOrCreateHostKeys(dir)
			if err != nil {
				t.Error(err)
				return
			}
			found[i] = ssh.FingerprintSHA256(signers[0].PublicKey())
		})
	}
	wg.Wait()
	for _, f := range found {
		if f != found[0] {
			t.Fatalf("different keys: %q", found)
		}
	}
	onlyFile(t, dir)
}

func TestHostKeysOfAnotherServer(t *testing.T) {
	dir := t.TempDir()
	sshKeygen(t, dir, "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", "ssh_host_rsa_key")
	sshKeygen(t, dir, "-q", "-t", "ecdsa", "-N", "", "-f", "ssh_host_ecdsa_key")
	var types []string
	for _, s := range hostKeys(t, dir) {
		types = append(types, s.PublicKey().Type())
	}
	if got := strings.Join(types, " "); got != "ssh-ed25519 ecdsa-sha2-nistp256 ssh-rsa" {
		t.Errorf("got %s", got)
	}
}

func TestHostKeysRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir, file string)
		want  string
	}{
		"readable by others": {func(t *testing.T, _, file string) {
			t.Helper()
			chmod(t, file, 0o644)
		}, "can be read by others (mode 0644): run chmod 600"},
		"readable by group": {func(t *testing.T, _, file string) {
			t.Helper()
			chmod(t, file, 0o640)
		}, "can be read by others"},
		"damaged": {func(t *testing.T, _, file string) {
			t.Helper()
			if err := os.WriteFile(file, []byte("rubbish"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "is damaged"},
		"empty": {func(t *testing.T, _, file string) {
			t.Helper()
			truncate(t, file, 0)
		}, "is damaged"},
		"enormous": {func(t *testing.T, _, file string) {
			t.Helper()
			truncate(t, file, 1<<30)
		}, "is not a key file"},
		"a folder": {func(t *testing.T, dir, _ string) {
			t.Helper()
			if err := os.Mkdir(filepath.Join(dir, "ssh_host_x_key"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is not a key file"},
		"a dangling link": {func(t *testing.T, dir, _ string) {
			t.Helper()
			if err := os.Symlink("nowhere", filepath.Join(dir, "ssh_host_x_key")); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		"passphrase": {func(t *testing.T, dir, _ string) {
			t.Helper()
			sshKeygen(t, dir, "-q", "-t", "ed25519", "-N", "secret", "-f", "ssh_host_x_key")
		}, "has a passphrase: remove it"},
		"weak": {func(t *testing.T, dir, _ string) {
			t.Helper()
			sshKeygen(t, dir, "-q", "-t", "rsa", "-b", "1024", "-N", "", "-f", "ssh_host_x_key")
		}, "too weak"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			hostKeys(t, dir)
			c.spoil(t, dir, filepath.Join(dir, "ssh_host_ed25519_key"))
			_, err := keys.LoadOrCreateHostKeys(dir)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got error %v, want %q", err, c.want)
			}
		})
	}
}

func TestHostKeysInAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hostkeys")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.LoadOrCreateHostKeys(file); err == nil || !strings.Contains(err.Error(), "make folder of host keys") {
		t.Fatalf("got error %v", err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}
