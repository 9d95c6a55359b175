package keys_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
)

var certTime = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// userCert is a good certificate of key 1 for alice, after change.
func userCert(t *testing.T, authority ssh.Signer, change func(*ssh.Certificate)) *ssh.Certificate {
	t.Helper()
	c := &ssh.Certificate{
		Key: testKey(t, 1), CertType: ssh.UserCert, KeyId: "alice@corp", Serial: 7, ValidPrincipals: []string{"alice"},
		ValidAfter: uint64(certTime.Add(-time.Hour).Unix()), ValidBefore: uint64(certTime.Add(time.Hour).Unix()),
		Permissions: ssh.Permissions{CriticalOptions: map[string]string{}, Extensions: map[string]string{
			"permit-pty": "", "permit-port-forwarding": "", "permit-agent-forwarding": "", "permit-user-rc": "",
		}},
	}
	if change != nil {
		change(c)
	}
	if err := c.SignCert(rand.Reader, authority); err != nil {
		t.Fatal(err)
	}
	return c
}

func signerOf(t testing.TB, dir, name string) ssh.Signer {
	t.Helper()
	s, err := ssh.ParsePrivateKey([]byte(readFile(t, filepath.Join(dir, name))))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// P3: what a certificate must be to be taken, and what comes of it.
func TestP03Certificates(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ca", "boss_ca", "bound_ca", "other_ca"} {
		sshKeygen(t, dir, "-q", "-t", "ed25519", "-N", "", "-f", name)
	}
	sshKeygen(t, dir, "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", "rsa_ca")
	pub := func(name string) string { return strings.TrimSpace(readFile(t, filepath.Join(dir, name+".pub"))) }
	file := filepath.Join(dir, "authorities")
	put(t, file, "# ours\ncert-authority "+pub("ca")+"\nrole=admin "+pub("boss_ca")+
		"\nprincipals=\"alice,bob\",verbs=\"shell,exec\",project=\"web\" "+pub("bound_ca")+"\n"+pub("rsa_ca")+"\n")
	trust, err := keys.OpenTrust(file, "")
	if err != nil || trust.Authorities() != 4 {
		t.Fatal(trust.Authorities(), err)
	}
	change := func(f func(*ssh.Certificate)) func(*ssh.Certificate) { return f }
	for name, c := range map[string]struct {
		ca     string
		change func(*ssh.Certificate)
		want   string // the principal, role and scope; or a part of the reason
	}{
		"good":            {"ca", nil, "alice member all"},
		"rsa authority":   {"rsa_ca", nil, "alice member all"},
		"admin":           {"boss_ca", nil, "alice admin all"},
		"for ever":        {"ca", change(func(c *ssh.Certificate) { c.ValidBefore = ssh.CertTimeInfinity }), "alice member all"},
		"first that is":   {"ca", change(func(c *ssh.Certificate) { c.ValidPrincipals = []string{"local", "No One", "carol", "alice"} }), "carol member all"},
		"no forwarding":   {"ca", change(func(c *ssh.Certificate) { delete(c.Extensions, "permit-port-forwarding") }), "alice member no-forwarding"},
		"bound":           {"bound_ca", nil, "alice member project=web verbs=shell,exec"},
		"bound, narrower": {"bound_ca", change(func(c *ssh.Certificate) { c.Extensions["verbs@sandgate"] = "shell" }), "alice member project=web verbs=shell"},
		"own scope":       {"ca", change(func(c *ssh.Certificate) { c.Extensions["sandbox@sandgate"] = "dev,sbx_x" }), "alice member sandbox=dev,sbx_x"},

		"unknown authority":    {"other_ca", nil, "authority is not trusted"},
		"a host's":             {"ca", change(func(c *ssh.Certificate) { c.CertType = ssh.HostCert }), "of a host"},
		"no type":              {"ca", change(func(c *ssh.Certificate) { c.CertType = 0 }), "of a host"},
		"no principal":         {"ca", change(func(c *ssh.Certificate) { c.ValidPrincipals = nil }), "names no principal"},
		"wrong principal":      {"bound_ca", change(func(c *ssh.Certificate) { c.ValidPrincipals = []string{"carol", "root"} }), "none of its principals"},
		"the operator":         {"ca", change(func(c *ssh.Certificate) { c.ValidPrincipals = []string{"local"} }), "none of its principals"},
		"the server":           {"ca", change(func(c *ssh.Certificate) { c.ValidPrincipals = []string{"system"} }), "none of its principals"},
		"expired":              {"ca", change(func(c *ssh.Certificate) { c.ValidBefore = uint64(certTime.Unix()) }), "has expired"},
		"not yet":              {"ca", change(func(c *ssh.Certificate) { c.ValidAfter = uint64(certTime.Unix() + 1) }), "not valid yet"},
		"times that wrap":      {"ca", change(func(c *ssh.Certificate) { c.ValidAfter = 1 << 63 }), "not valid yet"},
		"unknown demand":       {"ca", change(func(c *ssh.Certificate) { c.CriticalOptions["verify-required"] = "" }), `demands "verify-required"`},
		"empty command":        {"ca", change(func(c *ssh.Certificate) { c.CriticalOptions["force-command"] = " " }), "cannot be run"},
		"unknown verb":         {"ca", change(func(c *ssh.Certificate) { c.Extensions["verbs@sandgate"] = "fly" }), "is not a verb"},
		"empty scope":          {"ca", change(func(c *ssh.Certificate) { c.Extensions["sandbox@sandgate"] = "" }), "is empty"},
		"beyond its authority": {"bound_ca", change(func(c *ssh.Certificate) { c.Extensions["project@sandgate"] = "db" }), "goes beyond"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := trust.Authenticate(userCert(t, signerOf(t, dir, c.ca), c.change), "ssh", certTime)
			got := fmt.Sprint(err)
			if err == nil {
				got = p.ID + " " + string(p.Role) + " " + p.Scope.String()
			}
			if err == nil && got != c.want || err != nil && !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	// What was changed after it was signed is not signed.
	forged := userCert(t, signerOf(t, dir, "ca"), nil)
	forged.ValidPrincipals = []string{"bob"}
	if p, err := trust.Authenticate(forged, "ssh", certTime); err == nil {
		t.Errorf("forged: %+v", p)
	}
	// Signed by its own key, whoever trusts that key.
	self := signerOf(t, dir, "other_ca")
	own := userCert(t, self, func(c *ssh.Certificate) { c.Key = self.PublicKey() })
	if p, err := trust.Authenticate(own, "ssh", certTime); err == nil {
		t.Errorf("self-signed: %+v", p)
	}
	// Taken apart: what sessions may not do, and when it ends.
	p, err := trust.Authenticate(userCert(t, signerOf(t, dir, "ca"), func(c *ssh.Certificate) {
		c.Extensions = nil
		c.CriticalOptions["force-command"] = "uptime"
	}), "ssh", certTime)
	if err != nil || p.Limits != (keys.SessionLimits{NoPTY: true, NoAgent: true, Command: "uptime"}) || p.Scope.Allows(keys.Forward) || !p.Expires.Equal(certTime.Add(time.Hour)) {
		t.Errorf("bare: %+v, %v", p, err)
	}
	// It is good as long as its authority says so.
	if err := trust.Recheck(p, certTime.Add(time.Hour)); err == nil {
		t.Error("it is good after its time")
	}
	put(t, file, pub("boss_ca")+"\n")
	if err := trust.Recheck(p, certTime); err != nil {
		t.Errorf("before the reload: %v", err)
	}
	if err := trust.Reload(); err != nil {
		t.Fatal(err)
	}
	if err := trust.Recheck(p, certTime); err == nil {
		t.Error("it is good although its authority is gone")
	}
	put(t, file, "nonsense")
	if err := trust.Reload(); err == nil || trust.Authorities() != 1 {
		t.Errorf("a file that is damaged: %v, %d left", err, trust.Authorities())
	}
}

func TestParseAuthorities(t *testing.T) {
	key := line(testKey(t, 1))
	for text, want := range map[string]string{
		"": "", "# nothing\n\n": "",
		key: "", "cert-authority,role=member " + key: "", `principals="a,b",no-forwarding ` + key + " comment": "",
		key + "\n" + key:                     "line 2: an authority that stands in the file twice",
		"role=king " + key:                   `line 1: "king" is not a role`,
		"no-pty " + key:                      `line 1: the option "no-pty" is not known`,
		`principals="" ` + key:               "line 1: the option principals is empty",
		`principals="Not One" ` + key:        "cannot be a principal",
		`verbs="fly" ` + key:                 "the option verbs",
		`principals="a ` + key:               "a quote is not closed",
		"cert-authority=x " + key:            "takes no value",
		",role=admin " + key:                 "malformed",
		"ssh-ed25519 AAAA":                   "damaged",
		"\n\nnonsense":                       "line 3: this is not a public key",
		"ssh-dss AAAA":                       "too weak",
		strings.Repeat("x", 20000):           "longer than",
		strings.Repeat("# "+key+"\n", 20000): "this is not a file of public keys",
	} {
		_, err := keys.ParseAuthorities(strings.NewReader(text))
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// Revoked keys and certificates, as ssh-keygen makes the list and as people
// write it, mean here what they mean to ssh-keygen.
func TestRevocations(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ca", "ca2", "user", "user2"} {
		sshKeygen(t, dir, "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", name)
	}
	sign := func(ca, out, id string, serial int, user string) {
		sshKeygen(t, dir, "-q", "-s", ca, "-I", id, "-n", "alice", "-z", fmt.Sprint(serial), user+".pub")
		if err := os.Rename(filepath.Join(dir, user+"-cert.pub"), filepath.Join(dir, out+".pub")); err != nil {
			t.Fatal(err)
		}
	}
	sign("ca", "c7", "seven", 7, "user")
	sign("ca", "c8", "eight", 8, "user")
	sign("ca", "c0", "none", 0, "user")
	sign("ca2", "d7", "seven", 7, "user")
	sign("ca", "e9", "nine", 9, "user2")
	put(t, filepath.Join(dir, "authorities"), readFile(t, filepath.Join(dir, "ca.pub"))+readFile(t, filepath.Join(dir, "ca2.pub")))
	all := []string{"c7", "c8", "c0", "d7", "e9"}
	krl := func(spec string, args ...string) func(t *testing.T) []byte {
		return func(t *testing.T) []byte {
			put(t, filepath.Join(dir, "spec"), spec)
			sshKeygen(t, dir, append(append([]string{"-q", "-k", "-f", "krl"}, args...), "spec")...)
			return []byte(readFile(t, filepath.Join(dir, "krl")))
		}
	}
	text := func(s string) func(*testing.T) []byte { return func(*testing.T) []byte { return []byte(s) } }
	sparse := "serial: 7\n"
	for i := 100; i < 400; i += 3 {
		sparse += fmt.Sprintf("serial: %d\n", i)
	}
	userPub, sum := readFile(t, filepath.Join(dir, "user.pub")), strings.Fields(sshKeygen(t, dir, "-l", "-f", "user.pub"))[1]
	for name, c := range map[string]struct {
		list    func(*testing.T) []byte
		revoked string
	}{
		"nothing":         {text("# none\n"), ""},
		"an empty KRL":    {krl(""), ""},
		"a serial of one": {krl("serial: 7\n", "-s", "ca.pub"), "c7"},
		"a range of one":  {krl("serial: 7-1000000\n", "-s", "ca.pub"), "c7 c8 e9"},
		"many serials":    {krl(sparse, "-s", "ca.pub"), "c7"},
		"all serials":     {krl("serial: 1-18446744073709551615\n", "-s", "ca2.pub"), "d7"},
		"an id":           {krl("id: none\n", "-s", "ca.pub"), "c0"},
		"a key":           {krl(userPub), "c7 c8 c0 d7"},
		"a key, SHA-1":    {krl("sha1: " + userPub), "c7 c8 c0 d7"},
		"a key, SHA-256":  {krl("sha256: " + userPub), "c7 c8 c0 d7"},
		"a key in full":   {krl("key: " + userPub), "c7 c8 c0 d7"},
		"a hash":          {krl("hash: " + sum + "\n"), "c7 c8 c0 d7"},
		"an authority":    {krl(readFile(t, filepath.Join(dir, "ca.pub"))), "c7 c8 c0 e9"},
		"a certificate": {func(t *testing.T) []byte {
			sshKeygen(t, dir, "-q", "-k", "-f", "krl", "c8.pub")
			return []byte(readFile(t, filepath.Join(dir, "krl")))
		}, "c8"},
		"keys as text":          {text(userPub), "c7 c8 c0 d7"},
		"an authority, text":    {text(readFile(t, filepath.Join(dir, "ca2.pub"))), "d7"},
		"a certificate as text": {text(readFile(t, filepath.Join(dir, "c7.pub"))), "c7"},
		"serials as text":       {text("serial: 8-9\n\nid: none\n"), "c8 e9 c0"},
		"a hash as text":        {text("hash: " + sum), "c7 c8 c0 d7"},
	} {
		t.Run(name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "revoked")
			put(t, list, string(c.list(t)))
			trust, err := keys.OpenTrust(filepath.Join(dir, "authorities"), list)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range all {
				pub, _, _, _, err := ssh.ParseAuthorizedKey([]byte(readFile(t, filepath.Join(dir, name+".pub"))))
				if err != nil {
					t.Fatal(err)
				}
				_, err = trust.Authenticate(pub.(*ssh.Certificate), "ssh", time.Now())
				if revoked := strings.Contains(" "+c.revoked+" ", " "+name+" "); revoked != (err != nil) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if wantKey := strings.Count(c.revoked, " ") == 3 && strings.HasSuffix(c.revoked, "d7"); wantKey != (trust.CheckKey(userPub) != nil) {
				t.Errorf("the plain key: %v", trust.CheckKey(userPub))
			}
		})
	}
}

// The list of revoked keys is read again when it changes; when it cannot be
// read nobody is let in.
func TestRevocationsChange(t *testing.T) {
	list := filepath.Join(t.TempDir(), "revoked")
	if _, err := keys.OpenTrust("", list); err == nil {
		t.Error("a list that is not there was taken")
	}
	put(t, list, "# none yet\n")
	trust, err := keys.OpenTrust("", list)
	if err != nil {
		t.Fatal(err)
	}
	key := line(testKey(t, 1))
	if err := trust.CheckKey(key); err != nil {
		t.Error(err)
	}
	put(t, list, key+"\n")
	if err := trust.CheckKey(key); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("after it was added: %v", err)
	}
	for _, broken := range []string{"serial: x", "SSHKRL\n\x00\x00\x00\x00\x02", "SSHKRL\n\x00\x00\x00", "ssh-ed25519 AAAA", "hash: MD5:x", "id:"} {
		put(t, list, broken)
		if err := trust.CheckKey(line(testKey(t, 2))); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%q: %v", broken, err)
		}
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	if err := trust.CheckKey(line(testKey(t, 2))); err == nil {
		t.Error("a list that is gone lets keys in")
	}
	put(t, list, "")
	if err := trust.CheckKey(key); err != nil {
		t.Errorf("after it was mended: %v", err)
	}
}

func FuzzRevocations(f *testing.F) {
	f.Add([]byte("SSHKRL\n\x00\x00\x00\x00\x01" + strings.Repeat("\x00", 32)))
	f.Add([]byte("serial: 1-5\nid: x\nhash: SHA256:AAAA\n"))
	f.Add([]byte("SSHKRL\n\x00\x00\x00\x00\x01" + strings.Repeat("\x00", 32) + "\x01\x00\x00\x00\x1d\x00\x00\x00\x00\x00\x00\x00\x00\x22\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x04\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		_, _ = keys.ParseRevocations(text)
	})
}

func FuzzAuthorities(f *testing.F) {
	f.Add("role=admin,principals=\"a,b\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIqIKx0/YAhnsL1ZLHRRY8sZ8RclU0k9mrxr5uVdWk0P x")
	f.Add("a=\"b\\\"c\",d e f")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := keys.ParseAuthorities(strings.NewReader(text))
		for _, a := range all {
			if err == nil && (a.Role != keys.Admin && a.Role != keys.Member || a.Key == nil) {
				t.Errorf("took %+v", a)
			}
		}
	})
}

func FuzzInviteCode(f *testing.F) {
	f.Add(" SGI_aaaaaaaaaaaaaaaaaaaaaaaaaa\n")
	f.Fuzz(func(t *testing.T, text string) {
		if code, ok := keys.ParseInviteCode(text); ok && len(code) != 30 {
			t.Errorf("took %q", code)
		}
	})
}

func TestInviteCode(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		c := keys.NewInviteCode()
		if got, ok := keys.ParseInviteCode("\t" + strings.ToUpper(c) + "\n"); !ok || got != c || seen[c] {
			t.Fatalf("code %q", c)
		}
		seen[c] = true
	}
	for _, bad := range []string{"", "sgi_", keys.NewSecret(), "sgi_" + strings.Repeat("a", 25), "sgi_" + strings.Repeat("1", 26), strings.Repeat(" ", 300)} {
		if _, ok := keys.ParseInviteCode(bad); ok {
			t.Errorf("%q was taken", bad)
		}
	}
}
