package sshgw

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	gossh "golang.org/x/crypto/ssh"
)

func FuzzUser(f *testing.F) {
	for _, s := range []string{
		"", "root", "sbx_4k2m7qxw3f5z", "sbx_", "sbx_A", "box+dev", "box+", "+", "a\x1b", "DOM\\user", "sbx_a+b+c", "-x", "a.b-c_d", "sbx_a/../b",
		"box+root", "box+~postgres", "box+~postgres+build", "box+build+root", "box+~root+root", "box+~", "box+~+x", "box+~_apt", "box+~~x", "~x", "box+~1000", "+build", "SBX_4K2M", "Sbx_a+B",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, user string) {
		got, err := parseUser(user)
		if err != nil {
			if !meansID(user) && !strings.Contains(user, "+") {
				t.Errorf("%q: %v", user, err)
			}
			if got != (target{}) {
				t.Errorf("%q: error and %+v", user, got)
			}
			if utf8.RuneCountInString(err.Error()) > 300 {
				t.Errorf("%q: %v", user, err)
			}
			return
		}
		if got.ref == "" {
			if got != (target{}) || meansID(user) || strings.Contains(user, "+") {
				t.Errorf("%q: %+v", user, got)
			}
			return
		}
		// The name is what its parts make, in one of their orders.
		session, account := "", "~"+got.account
		if got.session != "" {
			session = "+" + got.session
		}
		switch got.account {
		case "":
			account = ""
		default:
			account = "+" + account
		}
		short := strings.Replace(account, "+~root", "+root", 1)
		if !slices.Contains([]string{session + account, account + session, session + short, short + session}, user[min(len(user), len(got.ref)):]) {
			t.Errorf("%q: %+v", user, got)
		}
		if ref, _, _ := strings.Cut(user, "+"); got.isID != meansID(user) || got.isID && got.ref != strings.ToLower(ref) || !got.isID && got.ref != ref {
			t.Errorf("%q: %+v", user, got)
		}
		if len(got.ref) > len(idPrefix)+maxRef || len(got.account) > maxAccount || got.session == rootUser {
			t.Errorf("%q: %+v", user, got)
		}
		if strings.ContainsAny(user, " \t\n/\\;|&$`'\"<>*?[]{}()!#\x00") || strings.HasPrefix(user, "-") || strings.HasPrefix(user, ".") {
			t.Errorf("%q was taken", user)
		}
	})
}

// The grammar, part by part.
func TestUser(t *testing.T) {
	for user, want := range map[string]target{
		"gw":                                 {ref: "gw"},
		"DOM\\user":                          {},
		"a b":                                {},
		"sbx_4k2m":                           {ref: "sbx_4k2m", isID: true},
		"SBX_4K2M":                           {ref: "sbx_4k2m", isID: true},
		"Sbx_4k2M+Build":                     {ref: "sbx_4k2m", isID: true, session: "Build"},
		"box+dev":                            {ref: "box", session: "dev"},
		"box+root":                           {ref: "box", account: "root"},
		"box+~root":                          {ref: "box", account: "root"},
		"box+Root":                           {ref: "box", session: "Root"},
		"box+~postgres":                      {ref: "box", account: "postgres"},
		"box+~1000":                          {ref: "box", account: "1000"},
		"box+~_apt":                          {ref: "box", account: "_apt"},
		"sbx_a+~postgres+build":              {ref: "sbx_a", isID: true, account: "postgres", session: "build"},
		"sbx_a+build+~postgres":              {ref: "sbx_a", isID: true, account: "postgres", session: "build"},
		"box+build+root":                     {ref: "box", account: "root", session: "build"},
		"root":                               {ref: "root"},
		"root+root":                          {ref: "root", account: "root"},
		"box+ses_4k2m7qa3bc5d":               {ref: "box", session: "ses_4k2m7qa3bc5d"},
		"box+" + strings.Repeat("x", maxRef): {ref: "box", session: strings.Repeat("x", maxRef)},
	} {
		if got, err := parseUser(user); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", user, got, err, want)
		}
	}
	for _, user := range []string{
		"sbx_", "SBX_", "SBX_A-B", "sbx_\u212a", "+", "+build", "+~root", "+root", "a b+c", "DOM\\user+x", "sbx_../x", "box+", "box++", "box+a+", "box+~", "box+~~a", "box+a+b", "box+root+~postgres", "box+root+root",
		"box+~a+~a", "box+-a", "box+.a", "box+a b", "box+~__a", "box+~-a", "box+~" + strings.Repeat("x", maxAccount+1), "box+" + strings.Repeat("x", maxRef+1),
	} {
		if got, err := parseUser(user); err == nil || got != (target{}) {
			t.Errorf("%q was taken as %+v, %v", user, got, err)
		}
	}
}

func FuzzSplitCommand(f *testing.F) {
	for _, s := range []string{"", "a b", "'a b' c", `"a\"b"`, `a\ b`, `'`, `"`, `\`, "a'b'\"c\"d", "''", "\t\n", `"a\b"`, "é 'ü", "\xff", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args, err := splitCommand(line)
		if err != nil {
			if args != nil {
				t.Errorf("%q: error and %q", line, args)
			}
			return
		}
		// Quoted again, the arguments come out as they are.
		var b strings.Builder
		for _, a := range args {
			if !utf8.ValidString(a) {
				t.Errorf("%q gave %q, which is not UTF-8", line, a)
			}
			b.WriteString(" '" + strings.ReplaceAll(a, "'", `'\''`) + "'")
		}
		again, err := splitCommand(b.String())
		if err != nil || !slices.Equal(again, args) {
			t.Errorf("%q gave %q, and that gave %q, %v", line, args, again, err)
		}
	})
}

// What sh makes of words without its special characters is what we make of
// them.
func TestSplitCommandLikeShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	for _, line := range []string{"a b", " a  'b c' ", `"a'b" 'c"d'`, `a\ b\\c`, `"a\"b\\c\d"`, `''""x`, `a'b'"c"d`, "'a\nb'", `--x='y z'`, `"é"`} {
		out, err := exec.Command(sh, "-c", `printf '%s\0' `+line).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if got, err := splitCommand(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; sh says %q", line, got, err, want)
		}
	}
}

func FuzzPayloads(f *testing.F) {
	f.Add(gossh.Marshal(struct {
		Term       string
		C, R, W, H uint32
		Modes      string
	}{"xterm-256color", 80, 24, 0, 0, "\x03\x00\x00\x00\x7f\x00"}))
	f.Add(gossh.Marshal(struct{ C, R, W, H uint32 }{1 << 31, 1 << 16, 0, 0}))
	f.Add(gossh.Marshal(struct{ N, V string }{"LC_ALL", "C"}))
	f.Add(gossh.Marshal(struct {
		H string
		P uint32
		O string
		Q uint32
	}{"localhost", 80, "::1", 1}))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if tty, err := parsePTY(b); err == nil {
			if len(tty.Term) > maxRef || strings.ContainsAny(tty.Term, "/\x00\n ") || strings.HasPrefix(tty.Term, ".") {
				t.Errorf("terminal %q", tty.Term)
			}
			for op := range tty.Modes {
				if op == 0 || op >= 160 {
					t.Errorf("mode %d", op)
				}
			}
		}
		if modes, err := parseModes(b); err == nil && len(modes) > len(b)/5 {
			t.Errorf("%d modes of %d bytes", len(modes), len(b))
		}
		if _, err := parseWindow(b); err == nil && len(b) != 16 {
			t.Errorf("a window of %d bytes", len(b))
		}
		if s, err := parseString(b); err == nil && len(s) != len(b)-4 {
			t.Errorf("a string of %d bytes in %d", len(s), len(b))
		}
		if name, value, err := parseEnv(b); err == nil {
			e := environment{accept: []string{"*"}}
			if e.set(name, value) && (strings.ContainsAny(name, "=\x00\n") || strings.HasPrefix(name, "LD_") || name == "PATH" || strings.Contains(value, "\x00")) {
				t.Errorf("%q=%q was taken", name, value)
			}
		}
		if host, port, err := parseDirectTCP(b); err == nil && (host == "" || port == 0 || strings.ContainsAny(host, " \n\x00\x1b")) {
			t.Errorf("address %q %d", host, port)
		}
	})
}

func FuzzHello(f *testing.F) {
	if b, err := os.ReadFile(filepath.Join("testdata", "openssh-9.2-hello")); err == nil {
		f.Add(b)
	}
	f.Add([]byte("SSH-2.0-x\r\n\x00\x00\x00\x0c\x04\x14"))
	f.Add([]byte("SSH-2.0-OpenSSH_9.9\n"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(b), peekBuffer)
		ident, n, err := peekIdent(r)
		if err == nil {
			if !strings.HasPrefix(ident, "SSH-") || n > maxIdent || len(ident) >= n || strings.Contains(ident, "\n") {
				t.Errorf("ident %q of %d bytes", ident, n)
			}
			if offer, err := peekKexInit(r, n); err == nil && len(chooseCiphers(offer, true)) == 0 {
				t.Error("no cipher is offered")
			}
		}
		// Nothing was consumed.
		rest := new(bytes.Buffer)
		if _, err := rest.ReadFrom(r); err != nil || !bytes.Equal(rest.Bytes(), b) {
			t.Errorf("%d of %d bytes are left, %v", rest.Len(), len(b), err)
		}
	})
}

func FuzzQuote(f *testing.F) {
	f.Add("plain")
	f.Add("a\x1b]0;x\a\nb\xff")
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{quoted(s), oneLine(s)} {
			if strings.ContainsAny(got, "\x00\x07\x1b\n\r\t\x7f") || !utf8.ValidString(got) || len(got) > 2048 {
				t.Errorf("%q became %q", s, got)
			}
		}
	})
}
