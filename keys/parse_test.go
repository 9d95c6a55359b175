package keys_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
)

// testKey is an ed25519 key that is the same in every run.
func testKey(tb testing.TB, n byte) ssh.PublicKey {
	tb.Helper()
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
	pub, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		tb.Fatal(err)
	}
	return pub
}

// line is a key as a line of authorized_keys, without comment.
func line(pub ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(pub)))
}

// rawLine is a line for a blob, well formed or not.
func rawLine(keyType string, fields any) string {
	blob := append(ssh.Marshal(struct{ T string }{keyType}), ssh.Marshal(fields)...)
	return keyType + " " + base64.StdEncoding.EncodeToString(blob)
}

func rsaLine(tb testing.TB, bits int) string {
	tb.Helper()
	private, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		tb.Fatal(err)
	}
	pub, err := ssh.NewPublicKey(&private.PublicKey)
	if err != nil {
		tb.Fatal(err)
	}
	return line(pub)
}

func TestParseKey(t *testing.T) {
	ed := line(testKey(t, 1))
	blob := strings.Fields(ed)[1]
	point := string(testKey(t, 2).Marshal()[19:])
	skEd := rawLine("sk-ssh-ed25519@openssh.com", struct{ Key, App string }{point, "ssh:"})
	signer, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	cert := &ssh.Certificate{Key: testKey(t, 1), CertType: ssh.UserCert, KeyId: "x", ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, signer); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		in      string
		comment string // of the key that is wanted
		reason  string // part of the reason that is wanted instead
	}{
		"plain":                 {in: ed},
		"comment":               {in: ed + " alice@laptop", comment: "alice@laptop"},
		"comment with blanks":   {in: ed + "  Alice's key,  the new one ", comment: "Alice's key,  the new one"},
		"tabs":                  {in: "\t" + strings.ReplaceAll(ed, " ", "\t") + "\talice\t2", comment: "alice 2"},
		"CRLF":                  {in: ed + " alice\r\n", comment: "alice"},
		"byte order mark":       {in: "\ufeff" + ed},
		"hostile comment":       {in: ed + " \x1b[31mred\x07\u202e \xff", comment: "[31mred"},
		"endless comment":       {in: ed + " " + strings.Repeat("ü", 1000), comment: strings.Repeat("ü", 128)},
		"rsa 2048":              {in: rsaLine(t, 2048)},
		"sk-ed25519":            {in: skEd},
		"rsa 1024":              {in: rsaLine(t, 1024), reason: "RSA key of 1024 bits is too weak"},
		"dss":                   {in: rawLine("ssh-dss", struct{ P string }{"p"}), reason: "ssh-dss) is too weak"},
		"certificate":           {in: line(cert), reason: "a certificate is not accepted"},
		"unknown type":          {in: "ssh-rot13 " + blob, reason: `type "ssh-rot13" is not accepted`},
		"signature algorithm":   {in: "rsa-sha2-512 " + blob, reason: `type "rsa-sha2-512" is not accepted`},
		"another type declared": {in: "ssh-rsa " + blob, reason: `says it is "ssh-rsa" but holds one of type "ssh-ed25519"`},
		"no blob":               {in: "ssh-ed25519", reason: "missing after its type"},
		"no type":               {in: blob, reason: "type of the key is missing"},
		"cut off":               {in: ed[:len(ed)-9], reason: "the key is damaged"},
		"not base64":            {in: "ssh-ed25519 AAAA*", reason: "the key is damaged"},
		"more than a key":       {in: rawLine("ssh-ed25519", struct{ K, More string }{point, "more"}), reason: "the key is damaged"},
		"RSA not canonical":     {in: notCanonical(t), reason: "the key is damaged"},
		"garbage":               {in: "hello world, how are you", reason: "this is not a public key"},
		"one word":              {in: "hello", reason: "this is not a public key"},
		"UTF-16":                {in: "\xff\xfes\x00s\x00h\x00-\x00", reason: "not plain text in UTF-8"},
		"option":                {in: "no-pty " + ed, reason: `the option "no-pty" in front`},
		"options":               {in: `restrict,pty,command="x" ` + ed, reason: `the option "restrict" in front`},
		"quoted option":         {in: `command="echo \"ssh-rsa AAAA\" # , x",no-pty ` + ed, reason: `the option "command" in front`},
		"from":                  {in: `from="10.0.0.0/8,!10.1.0.0/16"   ` + ed + " c", reason: `the option "from" in front`},
		"cert-authority":        {in: "cert-authority " + ed, reason: `the option "cert-authority" in front`},
		"option, weak key":      {in: "no-pty ssh-dss AAAA", reason: `the option "no-pty" in front`},
		"endless option":        {in: strings.Repeat("x", 999) + " " + ed, reason: "xxx…"},
		"open quote":            {in: `command="echo ` + ed, reason: "a quote is not closed"},
		"known_hosts marker":    {in: "@cert-authority *.example " + ed, reason: "this is not a public key"},
		"revoked":               {in: "@revoked " + ed, reason: "a line of known_hosts"},
		"too long":              {in: ed + strings.Repeat(" ", 20_000), reason: "longer than 16384 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := keys.ParseKey(c.in)
			if c.reason != "" {
				if err == nil || !strings.Contains(err.Error(), c.reason) {
					t.Fatalf("got %+v, %v; want an error with %q", key, err, c.reason)
				}
				if len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\n\x1b") {
					t.Errorf("not one short clean line: %q", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			pub, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key.PublicKey))
			if err != nil {
				t.Fatal(err)
			}
			if key.Fingerprint != ssh.FingerprintSHA256(pub) || key.Type != pub.Type() || key.PublicKey != line(pub) || key.Comment != c.comment {
				t.Errorf("got %+v", key)
			}
		})
	}
}

// notCanonical is an RSA key whose exponent has a superfluous zero in front: the
// same key as without, in a form with another hash.
func notCanonical(tb testing.TB) string {
	tb.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	n := append([]byte{0}, private.N.Bytes()...)
	return rawLine("ssh-rsa", struct{ E, N string }{"\x00\x01\x00\x01", string(n)})
}

func TestParseFile(t *testing.T) {
	a, b := line(testKey(t, 1)), line(testKey(t, 2))
	in := strings.Join([]string{
		"# my keys", "", a + " alice@laptop", "  \t", "rubbish", "no-pty " + b,
		a + " again", "   # indented", b,
		"-----BEGIN OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1r", "ssh-ed25519 inside", "-----END OPENSSH PRIVATE KEY-----",
		line(testKey(t, 3)), // without a newline at the end
	}, "\r\n")
	parsed, rejected, err := keys.Parse(iotest.OneByteReader(strings.NewReader(in)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range parsed {
		got = append(got, fmt.Sprint(p.Line, " ", p.Key.Comment))
	}
	for _, r := range rejected {
		got = append(got, r.String())
	}
	want := []string{
		"3 alice@laptop", "9 ", "14 ",
		"line 5: this is not a public key",
		`line 6: the option "no-pty" in front of the key is not supported: remove it if the key may do without`,
		"line 7: the same key as on line 3",
		"line 10: this is a private key; give the .pub file",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestParseBounds(t *testing.T) {
	for name, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"empty":          {strings.NewReader(""), ""},
		"endless":        {zeros{}, "more than 1024 KiB"},
		"too many keys":  {strings.NewReader(strings.Repeat("x\n", 5000)), "more than 1000 keys"},
		"broken":         {iotest.ErrReader(errors.New("the disk is gone")), "the disk is gone"},
		"large but fine": {strings.NewReader(strings.Repeat("# comment\n", 100_000)), ""},
		"too large":      {strings.NewReader(strings.Repeat("# comment\n", 110_000)), "more than 1024 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, rejected, err := keys.Parse(c.in)
			if c.want == "" {
				if err != nil || len(parsed)+len(rejected) != 0 {
					t.Fatal(parsed, rejected, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got error %v, want %q", err, c.want)
			}
		})
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// FuzzParse holds Parse against the parser of x/crypto: whatever is accepted
// here is the same key there and has no options, and a good plain key there is
// either accepted here or refused by a rule.
func FuzzParse(f *testing.F) {
	ed := line(testKey(f, 1))
	for _, s := range []string{
		ed, ed + " c", "no-pty " + ed, `command="a b\" c",x="," ` + ed, "#\n\n" + ed + "\r\n" + ed, "ssh-ed25519 ssh-ed25519 " + ed,
		rsaLine(f, 1024), notCanonical(f), `"` + ed, ed + "\x00", "\ufeff" + ed, "-----BEGIN PRIVATE KEY-----\n" + ed, "\xff\xfe" + ed, "a\rb\n" + ed,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		parsed, rejected, err := keys.Parse(bytes.NewReader(in))
		if err != nil {
			return
		}
		lines := strings.Split(strings.TrimPrefix(string(in), "\ufeff"), "\n")
		accepted := map[int]bool{}
		for _, p := range parsed {
			accepted[p.Line] = true
			pub, _, options, _, err := ssh.ParseAuthorizedKey([]byte(lines[p.Line-1]))
			if err != nil || len(options) != 0 || p.Key.Fingerprint != ssh.FingerprintSHA256(pub) || p.Key.PublicKey != line(pub) {
				t.Fatalf("accepted %q as %+v; x/crypto: %v, options %q", lines[p.Line-1], p.Key, err, options)
			}
			if strings.ContainsFunc(p.Key.Comment, func(r rune) bool { return r < ' ' }) || len(p.Key.Comment) > 256 {
				t.Fatalf("comment %q", p.Key.Comment)
			}
		}
		for _, r := range rejected {
			if accepted[r.Line] || r.Reason == "" || len(r.Reason) > 300 {
				t.Fatalf("rejected %v", r)
			}
		}
		if len(lines) != 1 || len(rejected) != 1 {
			return
		}
		pub, _, options, _, err := ssh.ParseAuthorizedKey(in)
		if err != nil || len(options) > 0 || pub.Type() != ssh.KeyAlgoED25519 {
			return
		}
		first := strings.Fields(lines[0])
		blob, err := base64.StdEncoding.DecodeString(first[1])
		if err == nil && bytes.Equal(blob, pub.Marshal()) && len(in) < 16<<10 && !bytes.ContainsRune(in, 0) {
			t.Fatalf("rejected %q: %v", in, rejected)
		}
	})
}
