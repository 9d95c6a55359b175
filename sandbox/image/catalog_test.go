package image

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestRuntimes(t *testing.T) {
	c := newCatalog(t, Config{HostRoot: fakeHost(t)})
	rts, err := c.Runtimes(context.Background())
	if err != nil || len(rts) != 2 {
		t.Fatalf("Runtimes = %v, %v", rts, err)
	}
	for _, rt := range rts {
		if !strings.HasPrefix(rt.ID, "srt_") || rt.Name == "" || rt.Description == "" || !strings.HasPrefix(rt.URL, "https://") || !strings.HasPrefix(rt.IconURL, "https://") ||
			len(rt.BrandColor) != 7 || len(rt.Tags) == 0 || rt.Requirements.MemoryBytes == 0 || rt.Source == "" {
			t.Errorf("%s is described poorly: %+v", rt.Name, rt)
		}
	}
	rts[0].Tags[0] = "changed"
	if again, _ := c.Runtimes(context.Background()); again[0].Tags[0] == "changed" {
		t.Error("a caller can change the catalog")
	}
}

func TestFind(t *testing.T) {
	c := newCatalog(t, Config{HostRoot: fakeHost(t)})
	for name, want := range map[string]string{
		"": BaseID, "base": BaseID, "base:latest": BaseID, "srt_base": BaseID, "host": HostID, "host:latest": HostID, "srt_host": HostID,
	} {
		if d, err := c.find(name); err != nil || d.meta.ID != want {
			t.Errorf("find(%q) = %s, %v, want %s", name, d.meta.ID, err, want)
		}
	}
	for name, want := range map[string]string{
		"hots":       `there is no runtime "hots"; did you mean host:latest? (available: base:latest, host:latest)`,
		"base:1":     `there is no runtime "base:1"; did you mean base:latest? (available: base:latest, host:latest)`,
		"python":     `there is no runtime "python" (available: base:latest, host:latest)`,
		"\x1b[31m\n": `there is no runtime "\x1b[31m\n" (available: base:latest, host:latest)`,
		"srt_hosts":  `there is no runtime "srt_hosts" (available: base:latest, host:latest)`,
	} {
		_, _, err := c.Provide(context.Background(), name, nil)
		if !fault.Is(err, fault.NotFound) || err.Error() != want {
			t.Errorf("Provide(%q) = %v\nwant %s", name, err, want)
		}
	}
	if _, _, err := c.Provide(context.Background(), strings.Repeat("x", 1<<20), nil); !fault.Is(err, fault.NotFound) || len(err.Error()) > 300 {
		t.Errorf("a huge name gave an error of %d bytes", len(err.Error()))
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	dir := t.TempDir()
	for name, cfg := range map[string]Config{
		"dir":     {},
		"default": {Dir: dir, Default: "nothing"},
		"mirror":  {Dir: dir, Mirror: "ftp://mirror/debian"},
		"options": {Dir: dir, Mirror: "http://mirror/debian [trusted=yes]"},
		"line":    {Dir: dir, Mirror: "http://mirror/debian\ndeb http://evil/"},
	} {
		if _, err := New(cfg); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: New = %v, want code INVALID", name, err)
		}
	}
}

func TestPick(t *testing.T) {
	ctx := context.Background()
	host := fakeHost(t)
	pick := func(c *Catalog, hostDirs bool) Choice {
		t.Helper()
		choice, err := c.Pick(ctx, hostDirs)
		if err != nil {
			t.Fatal(err)
		}
		return choice
	}
	c := newCatalog(t, Config{HostRoot: host, BaseImage: serveImage(t, nil, tarOf(t, minimalRoot()...))})
	if got := pick(c, true); got.Runtime != "host:latest" ||
		got.Reason != "base:latest is not on this machine yet, and making it needs a container registry or a Debian mirror; using host:latest, this machine's own programs" {
		t.Errorf("with nothing made: %+v", got)
	}
	if got := pick(c, false); got.Runtime != "base:latest" || !strings.Contains(got.Reason, "this engine cannot show host:latest") {
		t.Errorf("without host directories: %+v", got)
	}
	if got := pick(newCatalog(t, Config{HostRoot: t.TempDir()}), true); got.Runtime != "base:latest" || !strings.Contains(got.Reason, "no programs in /usr") {
		t.Errorf("on a host without programs: %+v", got)
	}
	if got := pick(newCatalog(t, Config{HostRoot: host, Default: "host"}), true); got != (Choice{Runtime: "host:latest"}) {
		t.Errorf("with host:latest as the default: %+v", got)
	}
	provide(t, c, "base")
	if got := pick(c, true); got != (Choice{Runtime: "base:latest"}) {
		t.Errorf("with base:latest made: %+v", got)
	}
}

func TestParseSources(t *testing.T) {
	list := parseSources([]byte("# deb http://no/ x y\ndeb [arch=amd64 signed-by=/k] http://a/debian bookworm main\ndeb-src http://b/ s m\ndeb http://c/ s\ndeb\n"), false)
	if want := []source{{"http://a/debian", "bookworm"}, {"http://c/", "s"}}; !slices.Equal(list, want) {
		t.Errorf("sources.list = %v, want %v", list, want)
	}
	deb822 := parseSources([]byte("Types: deb\nURIs: http://a/debian http://b/debian\nSuites: trixie trixie-updates\n\n# next\nuris: http://c/debian-security\nsuites: trixie-security\n"), true)
	want := []source{
		{"http://a/debian", "trixie"}, {"http://a/debian", "trixie-updates"}, {"http://b/debian", "trixie"}, {"http://b/debian", "trixie-updates"},
		{"http://c/debian-security", "trixie-security"},
	}
	if !slices.Equal(deb822, want) {
		t.Errorf("debian.sources = %v, want %v", deb822, want)
	}
}

func TestHostMirrors(t *testing.T) {
	host := fakeHost(t) // its sources.list has a mirror with a password
	c := newCatalog(t, Config{HostRoot: host})
	if main, security := c.mirrors(c.hostApt(context.Background())); main != defaultMirror || security != "http://deb.debian.org/debian-security" {
		t.Errorf("mirrors = %s, %s, want Debian's own", main, security)
	}
	writeFile(t, host, "etc/apt/sources.list.d/debian.sources", "Types: deb\nURIs: http://inside/debian/\nSuites: bookworm\n\nTypes: deb\nURIs: http://inside/sec\nSuites: bookworm-security\n")
	if main, security := c.mirrors(c.hostApt(context.Background())); main != "http://inside/debian" || security != "http://inside/sec" {
		t.Errorf("mirrors = %s, %s, want the host's", main, security)
	}
	if got := c.suites("stable"); !slices.Equal(got, []string{"stable", "bookworm"}) {
		t.Errorf("suites = %v", got)
	}
	writeFile(t, host, "usr/lib/os-release", "ID=ubuntu\nVERSION_CODENAME=noble\n")
	if main, _ := c.hostMirrors(); main != "" {
		t.Errorf("a host that is no Debian has the Debian mirror %s", main)
	}
	if got := c.suites("stable"); !slices.Equal(got, []string{"stable"}) {
		t.Errorf("suites = %v", got)
	}
}

func TestParseRelease(t *testing.T) {
	for _, bad := range []string{"", "Codename: \n", "Codename: --hook=evil\n", "Codename: a b\n", "Codename: UP\n", strings.Repeat("x", 100_000)} {
		if rel, err := parseRelease(strings.NewReader(bad)); err == nil {
			t.Errorf("parseRelease(%.40q) = %+v", bad, rel)
		}
	}
	rel, err := parseRelease(strings.NewReader("Codename: trixie\nDate: Sat, 06 Sep 2025 09:00:00 UTC\nSHA256:\nCodename: other\n"))
	if err != nil || rel.codename != "trixie" || rel.date.Unix() != 1757149200 {
		t.Errorf("release = %+v, %v", rel, err)
	}
}
