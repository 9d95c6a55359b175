package netdtest

import (
	"fmt"
	"strings"
	"testing"
)

// Page is a shell script that asks an address or a name for the page of a host.
func Page(at, host string) string {
	return fmt.Sprintf(`printf 'GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' | nc -w 3 %s 80 2>&1 || true`, host, at)
}

// Reaches fails the test unless Site is reached. sh runs a script in the
// sandbox and returns its output.
func Reaches(t testing.TB, sh func(script string) string) {
	t.Helper()
	if got := sh(Page(Site, Site)); !strings.Contains(got, "host="+Site) {
		t.Errorf("%s is not reached: %q", Site, got)
	}
}

// Refused fails the test when a sandbox reaches anything that the rule Site
// does not allow.
func Refused(t testing.TB, sh func(script string) string) {
	t.Helper()
	for _, p := range []struct{ at, host string }{
		{Other, Other},
		{Address, Site},
		{Metadata, Site},
		{Private, Site},
		{hostAddress, Site},
		{Site, Other},
	} {
		if got := sh(Page(p.at, p.host)); strings.Contains(got, "host=") {
			t.Errorf("%s of %s is reached: %q", p.host, p.at, got)
		}
	}
}

// Meaning returns the address that Site has in the sandbox.
func Meaning(t testing.TB, sh func(script string) string) string {
	t.Helper()
	got := strings.TrimSpace(sh("nslookup " + Site + " | grep -o '198[.]18[.][0-9.]*'"))
	if !strings.HasPrefix(got, "198.18.") {
		t.Errorf("%s has the address %q", Site, got)
	}
	return got
}
