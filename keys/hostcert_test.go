package keys_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
)

// The next key is announced beside the present one, takes its place when that
// retires, and no key is lost on the way.
func TestHostKeysRotate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hostkeys")
	old := hostKeys(t, dir)[0].PublicKey()
	for kind, next := range map[string]bool{"ed25519": false, "rsa": true} {
		if _, err := keys.AddHostKey(dir, kind, next); err == nil {
			t.Errorf("%s, next %v: it was made", kind, next)
		}
	}
	if _, err := keys.RetireHostKey(dir, "ed25519", certTime); err == nil {
		t.Error("the only key was retired")
	}
	for _, kind := range []string{"rsa", "ecdsa"} {
		if _, err := keys.AddHostKey(dir, kind, false); err != nil {
			t.Fatal(err)
		}
	}
	path, err := keys.AddHostKey(dir, "ed25519", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.AddHostKey(dir, "ed25519", true); err == nil {
		t.Error("two next keys")
	}
	files, err := keys.HostKeyFiles(dir)
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	i := slices.IndexFunc(files, func(f keys.HostKeyFile) bool { return f.Next })
	if i < 0 || files[i].Path != path {
		t.Fatalf("no next key in %+v", files)
	}
	next := files[i].Key
	all := hostKeys(t, dir)
	if len(all) != 4 || ssh.FingerprintSHA256(all[0].PublicKey()) != ssh.FingerprintSHA256(old) {
		t.Errorf("%d keys, the first is not the old one", len(all))
	}
	kept, err := keys.RetireHostKey(dir, "ed25519", certTime)
	if err != nil {
		t.Fatal(err)
	}
	all = hostKeys(t, dir)
	if len(all) != 3 || ssh.FingerprintSHA256(all[0].PublicKey()) != ssh.FingerprintSHA256(next) {
		t.Errorf("%d keys, the first is not the next one", len(all))
	}
	if s, err := ssh.ParsePrivateKey([]byte(readFile(t, kept))); err != nil || ssh.FingerprintSHA256(s.PublicKey()) != ssh.FingerprintSHA256(old) {
		t.Errorf("the old key is not in %s: %v", kept, err)
	}
}

// Certificates beside host keys are offered with them, and told when they are
// no good.
func TestHostCertificates(t *testing.T) {
	for name, c := range map[string]struct {
		sign []string // after ssh-keygen -s ca
		want string
	}{
		"good":        {[]string{"-h", "-I", "gw", "-n", "gw.example", "-V", "-1d:+52w"}, ""},
		"for ever":    {[]string{"-h", "-I", "gw"}, ""},
		"of a user":   {[]string{"-I", "gw", "-n", "alice"}, "of a user"},
		"expired":     {[]string{"-h", "-I", "gw", "-V", "-2d:-1d"}, "has expired"},
		"not yet":     {[]string{"-h", "-I", "gw", "-V", "+1d:+2d"}, "not valid yet"},
		"another key": {nil, "another key"},
		"a plain key": {nil, "plain key"},
		"damaged":     {nil, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			signers := hostKeys(t, dir)
			if name == "good" {
				if _, err := keys.AddHostKey(dir, "rsa", false); err != nil {
					t.Fatal(err)
				}
				signers = hostKeys(t, dir)
			}
			sshKeygen(t, dir, "-q", "-t", "ed25519", "-N", "", "-f", "ca")
			for _, s := range signers {
				file := "ssh_host_" + map[string]string{ssh.KeyAlgoED25519: "ed25519", ssh.KeyAlgoRSA: "rsa"}[s.PublicKey().Type()] + "_key"
				put(t, filepath.Join(dir, file+".pub"), string(ssh.MarshalAuthorizedKey(s.PublicKey())))
				if c.sign != nil {
					sshKeygen(t, dir, append(append([]string{"-q", "-s", "ca"}, c.sign...), file+".pub")...)
				}
			}
			cert := filepath.Join(dir, "ssh_host_ed25519_key-cert.pub")
			switch name {
			case "another key":
				sshKeygen(t, dir, "-q", "-s", "ca", "-h", "-I", "x", "ca.pub")
				if err := os.Rename(filepath.Join(dir, "ca-cert.pub"), cert); err != nil {
					t.Fatal(err)
				}
			case "a plain key":
				put(t, cert, string(ssh.MarshalAuthorizedKey(signers[0].PublicKey())))
			case "damaged":
				put(t, cert, "nonsense")
			}
			all, err := keys.WithHostCertificates(dir, signers, time.Now())
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || len(all) != 2*len(signers) {
				t.Fatal(len(all), err)
			}
			for _, s := range all[:len(signers)] {
				if _, is := s.PublicKey().(*ssh.Certificate); !is {
					t.Errorf("%s is no certificate", s.PublicKey().Type())
				}
				if s.PublicKey().Type() == ssh.CertAlgoRSAv01 {
					if m, ok := s.(ssh.MultiAlgorithmSigner); !ok || slices.Contains(m.Algorithms(), ssh.KeyAlgoRSA) {
						t.Error("the RSA key signs with SHA-1")
					}
				}
			}
		})
	}
}
