package egress_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/egress"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func mustParse(t testing.TB, private bool, rules ...string) *egress.Policy {
	t.Helper()
	p, err := egress.Parse(append([]string{}, rules...), private)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNames(t *testing.T) {
	p := mustParse(t, false, "GitHub.com.", "ssh.github.com:22", "*.npmjs.org:443", "db.example.com:5000-5010",
		"any.example.com:*", "udp:time.example.com:123", "bücher.example", "_srv.example.org:443")
	for _, c := range []struct {
		proto egress.Proto
		name  string
		port  uint16
		want  bool
	}{
		{egress.TCP, "github.com", 443, true},
		{egress.TCP, "github.com", 80, true},
		{egress.TCP, "github.com", 22, false},
		{egress.UDP, "github.com", 443, false},
		{egress.TCP, "api.github.com", 443, false},
		{egress.TCP, "evilgithub.com", 443, false},
		{egress.TCP, "github.com.evil.example", 443, false},
		{egress.TCP, "ssh.github.com", 22, true},
		{egress.TCP, "ssh.github.com", 443, false},
		{egress.TCP, "npmjs.org", 443, false},
		{egress.TCP, "registry.npmjs.org", 443, true},
		{egress.TCP, "a.b.npmjs.org", 443, true},
		{egress.TCP, "registry.npmjs.org", 80, false},
		{egress.TCP, "xnpmjs.org", 443, false},
		{egress.TCP, "db.example.com", 4999, false},
		{egress.TCP, "db.example.com", 5000, true},
		{egress.TCP, "db.example.com", 5010, true},
		{egress.TCP, "db.example.com", 5011, false},
		{egress.TCP, "any.example.com", 1, true},
		{egress.TCP, "any.example.com", 65535, true},
		{egress.TCP, "any.example.com", 0, false},
		{egress.UDP, "any.example.com", 53, false},
		{egress.UDP, "time.example.com", 123, true},
		{egress.TCP, "time.example.com", 123, false},
		{egress.TCP, "xn--bcher-kva.example", 443, true},
		{egress.TCP, "_srv.example.org", 443, true},
		{egress.TCP, "", 443, false},
	} {
		if got := p.AllowsName(c.proto, c.name, c.port); got != c.want {
			t.Errorf("%s %s:%d: %v, want %v", c.proto, c.name, c.port, got, c.want)
		}
	}
	if !p.KnowsName("time.example.com") || p.KnowsName("npmjs.org") || p.KnowsName("") {
		t.Error("KnowsName does not follow the rules")
	}
}

func TestCanonicalName(t *testing.T) {
	for in, want := range map[string]string{
		"GitHub.COM": "github.com", "github.com.": "github.com", "BÜCHER.example": "xn--bcher-kva.example",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "XN--BCHER-KVA.example": "xn--bcher-kva.example",
		"ｇithub.com": "github.com", "a_b.c": "a_b.c", "localhost": "localhost",
	} {
		if got, ok := egress.CanonicalName(in); !ok || got != want {
			t.Errorf("%q: %q %v, want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{"", ".", "..", "a..b", ".a", "a b", "a/b", "-a.b", "a-.b", "a\x00b", "a\nb", "1.2.3.4", "1.2.3", "10.0.0.0x1",
		"[::1]", "a:80", strings.Repeat("a", 64) + ".b", strings.Repeat("a.", 127) + "ab", "*.a", "xn--\x80.a", "a..", "127.1"} {
		if got, ok := egress.CanonicalName(in); ok {
			t.Errorf("%q is taken for the name %q", in, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	p := mustParse(t, true, "1.2.3.4", "8.8.0.0/16:853", "udp:1.1.1.1:53", "10.1.0.0/16:5432", "[2606:4700::/32]:443", "0.0.0.0/0:8080", "[::/0]:8080", "fc00::/7")
	for _, c := range []struct {
		proto egress.Proto
		addr  string
		port  uint16
		want  bool
	}{
		{egress.TCP, "1.2.3.4", 443, true},
		{egress.TCP, "::ffff:1.2.3.4", 443, true},
		{egress.TCP, "1.2.3.4", 22, false},
		{egress.TCP, "1.2.3.5", 443, false},
		{egress.TCP, "8.8.8.8", 853, true},
		{egress.TCP, "8.9.0.0", 853, false},
		{egress.UDP, "1.1.1.1", 53, true},
		{egress.TCP, "1.1.1.1", 53, false},
		{egress.TCP, "10.1.255.255", 5432, true},
		{egress.TCP, "10.2.0.0", 5432, false},
		{egress.TCP, "10.1.0.1", 8080, false},
		{egress.TCP, "169.254.169.254", 8080, false},
		{egress.TCP, "127.0.0.1", 8080, false},
		{egress.TCP, "9.9.9.9", 8080, true},
		{egress.TCP, "2606:4700::1111", 443, true},
		{egress.TCP, "2606:4701::1111", 443, false},
		{egress.TCP, "2a00::1", 8080, true},
		{egress.TCP, "64:ff9b::a01:1", 8080, false},
		{egress.TCP, "fd12::1", 443, true},
		{egress.TCP, "fd00:ec2::254", 80, false},
		{egress.TCP, "fe80::1", 8080, false},
	} {
		if got := p.AllowsAddr(c.proto, netip.MustParseAddr(c.addr), c.port); got != c.want {
			t.Errorf("%s %s port %d: %v, want %v", c.proto, c.addr, c.port, got, c.want)
		}
	}
	if p.AllowsAddr(egress.TCP, netip.Addr{}, 8080) {
		t.Error("the zero address is allowed")
	}
}

// A name that is allowed leads to public addresses, and to private ones only
// where a rule for the network opens them.
func TestDial(t *testing.T) {
	p := mustParse(t, true, "db.corp.example:5432", "10.1.0.0/16:5432")
	var open *egress.Policy
	for _, c := range []struct {
		addr         string
		port         uint16
		ruled, every bool
	}{
		{"93.184.216.34", 5432, true, true},
		{"10.1.2.3", 5432, true, false},
		{"10.1.2.3", 22, false, false},
		{"10.2.2.3", 5432, false, false},
		{"::ffff:10.2.2.3", 5432, false, false},
		{"169.254.169.254", 5432, false, false},
		{"127.0.0.1", 5432, false, false},
		{"::1", 5432, false, false},
		{"168.63.129.16", 80, false, false},
	} {
		a := netip.MustParseAddr(c.addr)
		if got := p.AllowsDial(egress.TCP, a, c.port); got != c.ruled {
			t.Errorf("rules: %s port %d: %v, want %v", c.addr, c.port, got, c.ruled)
		}
		if got := open.AllowsDial(egress.TCP, a, c.port); got != c.every {
			t.Errorf("nil policy: %s port %d: %v, want %v", c.addr, c.port, got, c.every)
		}
	}
}

func TestNilAndEmpty(t *testing.T) {
	open, err := egress.Parse(nil, false)
	if err != nil || open != nil || open.Strings() != nil {
		t.Fatalf("no rules at all: %v %v", open, err)
	}
	none := mustParse(t, false)
	public := netip.MustParseAddr("93.184.216.34")
	if !open.AllowsName(egress.UDP, "x.example", 443) || !open.AllowsAddr(egress.TCP, public, 22) || !open.KnowsName("x.example") {
		t.Error("the nil policy refuses something public")
	}
	if open.AllowsAddr(egress.TCP, netip.MustParseAddr("10.0.0.1"), 22) || open.AllowsAddr(egress.TCP, netip.MustParseAddr("198.18.0.1"), 22) {
		t.Error("the nil policy allows something private")
	}
	if none.AllowsName(egress.TCP, "x.example", 443) || none.AllowsAddr(egress.TCP, public, 443) || none.KnowsName("x.example") {
		t.Error("the empty policy allows something")
	}
	if s := none.Strings(); s == nil || len(s) != 0 {
		t.Errorf("the empty policy is written as %#v", s)
	}
	every := mustParse(t, false, "*:22")
	if !every.AllowsName(egress.TCP, "x.example", 22) || every.AllowsName(egress.TCP, "x.example", 443) || every.AllowsAddr(egress.TCP, public, 22) {
		t.Error("*:22 is not every name on port 22")
	}
}

func TestBadRulesSayWhy(t *testing.T) {
	for rule, want := range map[string]string{
		"":                             "names no host",
		":443":                         "names no host",
		"github.com:":                  "port after the colon is missing",
		"github.com:0":                 "is no port",
		"github.com:65536":             "is no port",
		"github.com:ssh":               "is no port",
		"github.com:+22":               "is no port",
		"github.com:90-80":             "ends before it begins",
		"https://github.com":           "is a URL",
		"git hub.com":                  "is no name",
		"a.*.com":                      "whole labels at the beginning",
		"*foo.com":                     "whole labels at the beginning",
		"**.foo.com":                   "whole labels at the beginning",
		"udp:1.1.1.1":                  "needs a port",
		"1.2.3":                        "is no address",
		"1.2.3.4/33":                   "is no network",
		"1.2.3.4/24":                   "did you mean 1.2.3.0/24 or 1.2.3.4",
		"::ffff:1.2.3.4":               "write the IPv4 address 1.2.3.4 as such",
		"[::1":                         "bracket is not closed",
		"[github.com]:80":              "brackets are for IPv6",
		"[2606:4700::1]x":              "colon and a port may follow",
		"fe80::1%eth0":                 "is no address",
		"169.254.169.254:80":           "cannot be opened",
		"127.0.0.1:80":                 "cannot be opened",
		"198.18.0.1:80":                "cannot be opened",
		"168.63.129.16":                "cannot be opened",
		"[fd00:ec2::254]:80":           "cannot be opened",
		"10.1.0.0/16:5432":             "only an admin",
		"[fd12::/16]:80":               "only an admin",
		"0x7f.1:80":                    "is no address",
		strings.Repeat("a", 600):       "too long",
		strings.Repeat("a.", 130) + "": "too long",
	} {
		_, err := egress.Parse([]string{rule}, false)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.Invalid || f.Field != egress.Field || !strings.Contains(f.Message, want) {
			t.Errorf("%q: %v, want %q", rule, err, want)
		}
	}
	if _, err := egress.Parse(make([]string, egress.MaxRules+1), false); !fault.Is(err, fault.Invalid) {
		t.Errorf("too many rules: %v", err)
	}
}

func TestRulesSurviveTheirString(t *testing.T) {
	in := []string{"GITHUB.com", "x.example:22", "*.npmjs.org:443", "*", "*:22", "1.2.3.4", "10.1.0.0/16:5432", "2606:4700::1", "[2606:4700::/32]:443",
		"udp:1.1.1.1:53", "udp:[2606:4700::1]:53", "tcp:x.example:1-65535", "x.example:8000-8100"}
	want := []string{"github.com", "x.example:22", "*.npmjs.org:443", "*", "*:22", "1.2.3.4", "10.1.0.0/16:5432", "[2606:4700::1]", "[2606:4700::/32]:443",
		"udp:1.1.1.1:53", "udp:[2606:4700::1]:53", "x.example:*", "x.example:8000-8100"}
	got := mustParse(t, true, in...).Strings()
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if again := mustParse(t, true, got...).Strings(); !slices.Equal(again, got) {
		t.Errorf("parsed again: %q", again)
	}
}

func TestMissing(t *testing.T) {
	for want, got := range map[string]string{
		"x.example:22":       egress.Missing(egress.TCP, "x.example", 22),
		"udp:1.1.1.1:53":     egress.Missing(egress.UDP, "1.1.1.1", 53),
		"[2606:4700::1]:443": egress.Missing(egress.TCP, "2606:4700::1", 443),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		mustParse(t, false, got)
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"github.com", "*.x:1-2", "10.0.0.0/8:*", "[::1]:443", "udp:1.1.1.1:53", "bücher.example", "tcp:*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := egress.ParseRule(text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := egress.ParseRule(r.String())
		if err != nil || again != r {
			t.Fatalf("%q is %+v, and its form %q is %+v (%v)", text, r, r.String(), again, err)
		}
		if !r.Prefix.IsValid() && !r.Below {
			p := mustParse(t, true, text)
			if port := max(r.Low, 80); r.Low == 0 && !p.AllowsName(r.Proto, r.Name, port) {
				t.Fatalf("%q does not allow its own name", text)
			}
		}
	})
}

// No rule, however wide, opens what is nobody's to open.
func FuzzReservedStaysClosed(f *testing.F) {
	f.Add("0.0.0.0/0:80", uint16(80))
	f.Add("[::/0]:*", uint16(80))
	f.Add("100.64.0.0/10:*", uint16(80))
	f.Fuzz(func(t *testing.T, rule string, port uint16) {
		p, err := egress.Parse([]string{rule}, true)
		if err != nil {
			return
		}
		for _, a := range []string{"127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00:ec2::254", "198.18.0.1", "0.0.0.0", "64:ff9b::7f00:1", "100.100.100.200", "168.63.129.16"} {
			addr := netip.MustParseAddr(a)
			if p.AllowsAddr(egress.TCP, addr, port) || p.AllowsDial(egress.TCP, addr, port) {
				t.Fatalf("%q opens %s", rule, a)
			}
		}
	})
}

func BenchmarkThousandRules(b *testing.B) {
	var rules []string
	for i := range 400 {
		rules = append(rules, fmt.Sprintf("host%d.example.com:443", i), fmt.Sprintf("*.zone%d.example.com:443", i))
	}
	for i := range 200 {
		rules = append(rules, fmt.Sprintf("11.%d.0.0/%d:443", i, 16+i%17))
	}
	for i, r := range rules { // mask
		if pre, err := netip.ParsePrefix(strings.TrimSuffix(r, ":443")); err == nil {
			rules[i] = pre.Masked().String() + ":443"
		}
	}
	p := mustParse(b, false, rules...)
	addr := netip.MustParseAddr("12.1.2.3")
	for _, c := range []struct {
		name string
		f    func() bool
		want bool
	}{
		{"name", func() bool { return p.AllowsName(egress.TCP, "host399.example.com", 443) }, true},
		{"wildcard", func() bool { return p.AllowsName(egress.TCP, "a.b.c.zone399.example.com", 443) }, true},
		{"refused", func() bool { return p.AllowsName(egress.TCP, "a.b.c.d.e.nowhere.example", 443) }, false},
		{"address", func() bool { return p.AllowsAddr(egress.TCP, addr, 443) }, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if c.f() != c.want {
					b.Fatal("wrong answer")
				}
			}
		})
	}
}
