package keys_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
)

// sshKeygen runs the system's ssh-keygen in dir.
func sshKeygen(tb testing.TB, dir string, args ...string) string {
	tb.Helper()
	path, err := exec.LookPath("ssh-keygen")
	if err != nil {
		tb.Skip("ssh-keygen is not installed (apt-get install openssh-client)")
	}
	cmd := exec.CommandContext(tb.Context(), path, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("ssh-keygen %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// TestSSHKeygen holds fingerprints and types against what ssh-keygen says.
func TestSSHKeygen(t *testing.T) {
	for _, kind := range []string{"ed25519", "ecdsa 256", "ecdsa 384", "ecdsa 521", "rsa 2048", "rsa 4096"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			name, bits, _ := strings.Cut(kind, " ")
			args := []string{"-q", "-t", name, "-N", "", "-C", "alice@lap top", "-f", "key"}
			if bits != "" {
				args = append(args, "-b", bits)
			}
			sshKeygen(t, dir, args...)
			key, err := keys.ParseKey(readFile(t, filepath.Join(dir, "key.pub")))
			if err != nil {
				t.Fatal(err)
			}
			// "256 SHA256:… alice@lap top (ED25519)"
			fields := strings.Fields(sshKeygen(t, dir, "-l", "-f", "key.pub"))
			if key.Fingerprint != fields[1] || key.Comment != "alice@lap top" {
				t.Errorf("got %+v, ssh-keygen says %q", key, fields)
			}
			// What is stored is a key for ssh-keygen too, and the same one.
			if err := os.WriteFile(filepath.Join(dir, "stored.pub"), []byte(key.PublicKey+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if stored := strings.Fields(sshKeygen(t, dir, "-l", "-f", "stored.pub")); stored[1] != key.Fingerprint {
				t.Errorf("stored key reads as %q", stored)
			}
		})
	}
}

// TestOtherFormats gives what people give by mistake.
func TestOtherFormats(t *testing.T) {
	dir := t.TempDir()
	sshKeygen(t, dir, "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", "openssh")
	sshKeygen(t, dir, "-q", "-t", "rsa", "-b", "2048", "-N", "", "-m", "PEM", "-f", "pem")
	sshKeygen(t, dir, "-q", "-t", "rsa", "-b", "2048", "-N", "", "-m", "PKCS8", "-f", "pkcs8")
	sshKeygen(t, dir, "-q", "-s", "openssh", "-I", "id", "-n", "alice", "pem.pub") // pem-cert.pub
	files := map[string]struct{ text, reason string }{
		"OpenSSH private key": {readFile(t, filepath.Join(dir, "openssh")), "this is a private key; give the .pub file"},
		"PEM private key":     {readFile(t, filepath.Join(dir, "pem")), "this is a private key; give the .pub file"},
		"PKCS8 private key":   {readFile(t, filepath.Join(dir, "pkcs8")), "this is a private key; give the .pub file"},
		"certificate":         {readFile(t, filepath.Join(dir, "pem-cert.pub")), "a certificate is not accepted"},
		"RFC 4716":            {sshKeygen(t, dir, "-e", "-m", "RFC4716", "-f", "openssh.pub"), "convert it with ssh-keygen -i -f FILE"},
		"PKCS8 public key":    {sshKeygen(t, dir, "-e", "-m", "PKCS8", "-f", "openssh.pub"), "convert it with ssh-keygen -i -m PKCS8 -f FILE"},
		"PEM public key":      {sshKeygen(t, dir, "-e", "-m", "PEM", "-f", "openssh.pub"), "convert it with ssh-keygen -i -m PEM -f FILE"},
		"PPK": {"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: x\nPublic-Lines: 2\nAAAA\nBBBB\nPrivate-Lines: 1\nCCCC\nPrivate-MAC: 00\n",
			"this is a private key; give the public key"},
		"ssh.com private key": {"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nAAAA\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\n", "this is a private key"},
		"TLS certificate":     {"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "this is not an ssh public key"},
	}
	for name, f := range files {
		t.Run(name, func(t *testing.T) {
			// A good key after it is still found.
			parsed, rejected, err := keys.Parse(strings.NewReader(f.text + line(testKey(t, 1)) + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			if len(parsed) != 1 || len(rejected) != 1 || rejected[0].Line != 1 || !strings.Contains(rejected[0].Reason, f.reason) {
				t.Fatalf("parsed %v, rejected %q", parsed, rejected)
			}
		})
	}

	// The conversions that the reasons name do work.
	for format, text := range map[string]string{"RFC4716": files["RFC 4716"].text, "PKCS8": files["PKCS8 public key"].text, "PEM": files["PEM public key"].text} {
		t.Run("convert "+format, func(t *testing.T) {
			file := fmt.Sprintf("in-%s", format)
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"-i", "-f", file}
			if format != "RFC4716" {
				args = []string{"-i", "-m", format, "-f", file}
			}
			if _, err := keys.ParseKey(sshKeygen(t, dir, args...)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestHostKeysForSSHKeygen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hostkeys")
	signers, err := keys.LoadOrCreateHostKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint := ssh.FingerprintSHA256(signers[0].PublicKey())
	if got := sshKeygen(t, dir, "-l", "-f", "ssh_host_ed25519_key"); !strings.Contains(got, fingerprint) {
		t.Errorf("ssh-keygen says %q, want %s", got, fingerprint)
	}
	known := filepath.Join(dir, "known_hosts")
	if err := os.WriteFile(known, []byte(keys.KnownHostsLine(signers[0].PublicKey(), "gw.example:2222", "[::1]:22")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"[gw.example]:2222", "::1"} {
		if got := sshKeygen(t, dir, "-l", "-F", host, "-f", known); !strings.Contains(got, fingerprint) {
			t.Errorf("ssh-keygen -F %s says %q, want %s", host, got, fingerprint)
		}
	}
}
