package keys_test

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
)

func TestValidPrincipal(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "alice": true, "0": true, "a.b_c-d": true, "local": true, "root": true, strings.Repeat("a", 32): true,
		"": false, strings.Repeat("a", 33): false, "Alice": false, ".a": false, "-a": false, "_a": false, "a b": false,
		"a/b": false, "a\x00": false, "ä": false, "a@b": false, "a+b": false, "system": false,
	} {
		if got := keys.ValidPrincipal(name); got != want {
			t.Errorf("ValidPrincipal(%q) = %v", name, got)
		}
	}
}

func TestPrincipalFromComment(t *testing.T) {
	for comment, want := range map[string]string{
		"alice@laptop": "alice", "alice": "alice", " Alice@Laptop ": "alice", `ACME\Alice@PC-7`: "alice", "a.b@c@d": "a.b",
		"": "", "@laptop": "", "Alice Smith": "", "cardno:000 123": "", "../../etc@x": "", "(none)": "",
		"local@host": "", "system@host": "", "Älice@x": "", strings.Repeat("a", 40) + "@x": "",
	} {
		got := keys.PrincipalFromComment(comment)
		if got != want {
			t.Errorf("PrincipalFromComment(%q) = %q, want %q", comment, got, want)
		}
		if got != "" && !keys.ValidPrincipal(got) {
			t.Errorf("PrincipalFromComment(%q) = %q is not valid", comment, got)
		}
	}
}

func TestParseRole(t *testing.T) {
	for _, r := range []keys.Role{keys.Admin, keys.Member} {
		if got, err := keys.ParseRole(string(r)); got != r || err != nil {
			t.Errorf("ParseRole(%q) = %q, %v", r, got, err)
		}
	}
	for _, s := range []string{"", "Admin", "root", "admin ", strings.Repeat("x", 1000)} {
		if got, err := keys.ParseRole(s); err == nil || got != "" || len(err.Error()) > 100 {
			t.Errorf("ParseRole(%q) = %q, %v", s, got, err)
		}
	}
}

func TestAuthenticate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		expires time.Time
		ok      bool
	}{
		"never":  {time.Time{}, true},
		"later":  {now.Add(1), true},
		"now":    {now, false},
		"before": {now.Add(-1), false},
	} {
		t.Run(name, func(t *testing.T) {
			scope := keys.Scope{Verbs: []keys.Verb{keys.Shell}}
			want := keys.Principal{ID: "alice", Role: keys.Admin, KeyID: "SHA256:x", Door: "ssh", Expires: c.expires, Scope: scope}
			wantAPI := keys.Principal{ID: "alice", Role: keys.Member, KeyID: "key_x", Door: "http", Expires: c.expires, Scope: scope}
			p, err := keys.Authenticate(keys.Key{Fingerprint: "SHA256:x", Principal: "alice", Role: keys.Admin, ExpiresAt: c.expires, Scope: scope}, "ssh", now)
			pa, errAPI := keys.AuthenticateAPI(keys.APIKey{ID: "key_x", Principal: "alice", Role: keys.Member, ExpiresAt: c.expires, Scope: scope}, "http", now)
			if c.ok {
				if !reflect.DeepEqual(p, want) || err != nil || !reflect.DeepEqual(pa, wantAPI) || errAPI != nil {
					t.Errorf("got %+v, %v and %+v, %v", p, err, pa, errAPI)
				}
				return
			}
			if p.ID != "" || pa.ID != "" || !errors.Is(err, keys.ErrExpired) || !errors.Is(errAPI, keys.ErrExpired) {
				t.Errorf("got %+v, %v and %+v, %v", p, err, pa, errAPI)
			}
		})
	}
}

func TestSecret(t *testing.T) {
	form := regexp.MustCompile(`^sgk_[a-z2-7]{40}$`)
	seen := map[string]bool{}
	for range 1000 {
		s := keys.NewSecret()
		if !form.MatchString(s) || seen[s] {
			t.Fatalf("secret %q", s)
		}
		seen[s] = true
	}
	// echo -n sgk_x | sha256sum
	const hash = "f52b18b98d95092fbcd467a3bb135275a14f035be55411774d3cb5f4133bdeaa"
	secret := keys.NewSecret()
	if h := keys.HashSecret(secret); len(h) != 64 || !keys.MatchSecret(h, secret) || keys.MatchSecret(h, secret+"x") || keys.MatchSecret("", secret) {
		t.Error("MatchSecret and HashSecret do not agree")
	}
	if got := keys.HashSecret("sgk_x"); got != hash {
		t.Errorf("HashSecret: got %s", got)
	}
}
