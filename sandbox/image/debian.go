package image

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	defaultMirror   = "http://deb.debian.org/debian"
	mirrorTimeout   = 10 * time.Second
	maxReleaseBytes = 2 << 20
	maxSourcesBytes = 1 << 20
)

// aptSettings is what the host's administrator told apt and what a bootstrap
// on this host must respect as well.
type aptSettings struct {
	mirror, security string // of the host's own suite; empty when it is no Debian
	proxy            string // for http
	secureProxy      string // for https
	skipValidUntil   bool   // a mirror that is a snapshot
	skipDate         bool   // a clock that is not right
}

// hostApt reads the host's apt settings.
func (c *Catalog) hostApt(ctx context.Context) aptSettings {
	var s aptSettings
	s.mirror, s.security = c.hostMirrors()
	if c.cfg.HostRoot != "/" {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "apt-config", "shell",
		"PROXY", "Acquire::http::Proxy", "SECURE", "Acquire::https::Proxy",
		"VALID", "Acquire::Check-Valid-Until", "DATE", "Acquire::Check-Date")
	cmd.Env = []string{"PATH=" + toolPath, "LC_ALL=C.UTF-8"}
	out, err := cmd.Output()
	if err != nil { // no apt here
		return s
	}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, "'")
		switch key {
		case "PROXY":
			s.proxy = value
		case "SECURE":
			s.secureProxy = value
		case "VALID":
			s.skipValidUntil = value == "false" || value == "0" || value == "no"
		case "DATE":
			s.skipDate = value == "false" || value == "0" || value == "no"
		}
	}
	return s
}

// hostMirrors finds the Debian mirrors in the host's apt sources. Mirrors that
// need credentials are not used: they would end up in the layer.
func (c *Catalog) hostMirrors() (main, security string) {
	if c.osRelease()["ID"] != "debian" {
		return "", ""
	}
	files := []string{c.hostPath("etc/apt/sources.list")}
	for _, ext := range []string{"*.list", "*.sources"} {
		more, _ := filepath.Glob(c.hostPath("etc/apt/sources.list.d", ext)) // the pattern is well-formed
		files = append(files, more...)
	}
	for _, file := range files {
		data, err := readBounded(file, maxSourcesBytes)
		if err != nil {
			continue
		}
		for _, e := range parseSources(data, strings.HasSuffix(file, ".sources")) {
			u, err := url.Parse(e.uri)
			if err != nil || u.User != nil {
				continue
			}
			mirror, err := checkMirror(e.uri)
			if err != nil {
				continue
			}
			switch {
			case strings.HasSuffix(e.suite, "-security") || strings.HasSuffix(e.suite, "/updates"):
				orDefault(&security, mirror)
			case strings.HasSuffix(u.Path, "/debian") || strings.HasSuffix(u.Path, "/debian/"):
				orDefault(&main, mirror)
			}
		}
	}
	return main, security
}

// source is one repository of apt's sources.
type source struct{ uri, suite string }

// parseSources reads the one-line and the deb822 format, as far as Debian's own
// entries use them.
func parseSources(data []byte, deb822 bool) []source {
	var out []source
	var uris, suites []string
	flush := func() {
		for _, u := range uris {
			for _, s := range suites {
				out = append(out, source{u, s})
			}
		}
		uris, suites = nil, nil
	}
	for raw := range strings.Lines(string(data)) {
		line := strings.TrimSpace(raw)
		if strings.HasPrefix(line, "#") {
			continue
		}
		if !deb822 {
			fields := strings.Fields(optionBrackets.ReplaceAllString(line, " "))
			if len(fields) >= 3 && fields[0] == "deb" {
				out = append(out, source{fields[1], fields[2]})
			}
			continue
		}
		if line == "" {
			flush()
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		switch strings.ToLower(key) {
		case "uris":
			uris = strings.Fields(value)
		case "suites":
			suites = strings.Fields(value)
		}
	}
	flush()
	return out
}

var optionBrackets = regexp.MustCompile(`\[[^\]]*\]`)

// osRelease returns the host's os-release, and an empty map when it has none.
func (c *Catalog) osRelease() map[string]string {
	out := make(map[string]string)
	for _, file := range []string{"etc/os-release", "usr/lib/os-release"} {
		data, err := readBounded(c.hostPath(file), maxSourcesBytes)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if ok {
				out[key] = strings.Trim(value, `"'`)
			}
		}
		break
	}
	return out
}

// release is what a mirror says about a suite. apt checks signatures; until
// then this is only good for choosing what to ask apt for.
type release struct {
	codename string
	date     time.Time // zero when it makes no sense
}

var codenamePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{1,40}$`)

// mirrorClient asks mirrors the way apt would.
type mirrorClient struct{ http *http.Client }

func newMirrorClient(s aptSettings) *mirrorClient {
	t := http.DefaultTransport.(*http.Transport).Clone()
	fromEnv := t.Proxy
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		proxy := s.proxy
		if r.URL.Scheme == "https" {
			proxy = s.secureProxy
		}
		switch proxy {
		case "":
			return fromEnv(r)
		case "DIRECT":
			return nil, nil
		}
		return url.Parse(proxy)
	}
	return &mirrorClient{http: &http.Client{Transport: t, Timeout: mirrorTimeout}}
}

func (m *mirrorClient) close() { m.http.CloseIdleConnections() }

// release asks a mirror about a suite.
func (m *mirrorClient) release(ctx context.Context, mirror, suite string) (release, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, mirror+"/dists/"+suite+"/InRelease", nil)
	if err != nil {
		return release{}, err
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return release{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return release{}, fmt.Errorf("%s has no %s: %s", mirror, suite, resp.Status)
	}
	return parseRelease(io.LimitReader(resp.Body, maxReleaseBytes))
}

func parseRelease(r io.Reader) (release, error) {
	var rel release
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "Codename":
			rel.codename = value
		case "Date":
			if at, err := time.Parse(time.RFC1123, value); err == nil && at.Year() >= 2000 && at.Year() < 2200 {
				rel.date = at
			}
		case "SHA256", "MD5Sum": // the fields that count come before the lists
			return rel, rel.check()
		}
	}
	if err := lines.Err(); err != nil {
		return release{}, fmt.Errorf("read InRelease: %w", err)
	}
	return rel, rel.check()
}

func (r release) check() error {
	if !codenamePattern.MatchString(r.codename) {
		return fmt.Errorf("InRelease names no usable suite (%.60q)", r.codename)
	}
	return nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, io.LimitReader(f, limit)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
