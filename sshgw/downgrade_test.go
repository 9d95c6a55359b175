package sshgw

import (
	"strings"
	"testing"
)

// P19: what Terrapin needs is not offered, and what stops it is: strict key
// exchange, no CBC, no encrypt-and-MAC.
func TestP19Terrapin(t *testing.T) {
	g := newGateway(t)
	r := run(t, g.ssh("-vv", "gw", "true"), nil)
	_, offer, found := strings.Cut(r.stderr, "peer server KEXINIT proposal")
	if !found {
		t.Fatalf("the client does not show what it was offered: %q", r.stderr)
	}
	offers := make(map[string][]string)
	for line := range strings.SplitSeq(offer, "\n") {
		name, list, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "debug2: "), ": ")
		if ok && offers[name] == nil {
			offers[name] = strings.Split(list, ",")
		}
	}
	for name, must := range map[string]func(string) bool{
		"ciphers ctos": func(c string) bool { return !strings.HasSuffix(c, "-cbc") },
		"ciphers stoc": func(c string) bool { return !strings.HasSuffix(c, "-cbc") },
		"MACs ctos":    func(m string) bool { return strings.Contains(m, "-etm@") },
		"MACs stoc":    func(m string) bool { return strings.Contains(m, "-etm@") },
	} {
		if len(offers[name]) == 0 {
			t.Errorf("there is no offer of %s in %q", name, offer)
		}
		for _, algorithm := range offers[name] {
			if !must(algorithm) {
				t.Errorf("%s has %s", name, algorithm)
			}
		}
	}
	if kex := strings.Join(offers["KEX algorithms"], ","); !strings.Contains(kex, "kex-strict-s-v00@openssh.com") {
		t.Errorf("strict key exchange is not offered: %s", kex)
	}
}
