package cli

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// hostAlias is what can stand after Host and be typed as a host.
var hostAlias = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// sandboxAlias is a sandbox's name that is taken over as a host: ssh turns
// hosts to lower case, and one with a dot could be a host of the internet.
var sandboxAlias = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// maxAliases bounds the names that are taken over.
const maxAliases = 1000

// sshHosts is what the hosts of the gateway are written from.
type sshHosts struct {
	alias, host, port string
	keyAlias          string   // the name of the gateway in known_hosts
	knownHosts        string   // value of UserKnownHostsFile; empty: the user's
	carried           []string // lines by which the user's ssh reaches the gateway
	identity          []string // of them, those that say who the user is
	names             []string // sandboxes that are hosts under their name
	skipped           []string // why others are not, for a person
}

// text is the content of the file.
func (h sshHosts) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	keys := func() {
		if h.keyAlias != "" {
			line("    HostKeyAlias %s", h.keyAlias)
		} else {
			line("    HostKeyAlias %s", knownHostsName(h.host, h.port))
		}
		if h.knownHosts != "" {
			line("    UserKnownHostsFile %s", h.knownHosts)
			line("    UpdateHostKeys yes")
		}
		line("    CheckHostIP no")
		line("    ServerAliveInterval 15")
		line("    ServerAliveCountMax 3")
		line("    SendEnv COLORTERM LANG LC_*")
	}
	line("# Written by sandgate config-ssh, which renews it; changes are lost.")
	line("")
	line("Host %s", h.alias)
	line("    HostName %s", h.host)
	line("    Port %s", h.port)
	line("    User %s", controlAccount)
	for _, l := range h.carried {
		line("    %s", l)
	}
	keys()
	line("")
	line("Host %s", strings.Join(append([]string{"sbx_*"}, h.names...), " "))
	line("    ProxyJump %s", h.alias)
	for _, l := range h.identity {
		line("    %s", l)
	}
	line("    ForwardAgent no")
	keys()
	return b.String()
}

// controlAccount is the user name that leads to no sandbox.
const controlAccount = "sandgate"

// knownHostsName is how known_hosts calls a host and port.
func knownHostsName(host, port string) string {
	if port == "22" {
		return host
	}
	return "[" + host + "]:" + port
}

// all are the patterns of the hosts.
func (h sshHosts) all() []string {
	if h.host == "" {
		return []string{}
	}
	return append([]string{h.alias, "sbx_*"}, h.names...)
}

// example names one sandbox to try.
func (h sshHosts) example() string {
	if len(h.names) == 0 {
		return ""
	}
	return ", ssh " + h.names[0]
}

// ownNames returns the names of the principal's own sandboxes that can be
// hosts, and says of the others why not. Names in taken are those of hosts the
// user has already; they keep them.
func ownNames(ctx context.Context, c *api.Client, principal, alias string, taken map[string]bool) (names, skipped []string, err error) {
	for offset := 0; len(names) < maxAliases; {
		page, err := c.List(ctx, api.ListRequest{Sort: "name", Direction: "asc", Limit: 100, Offset: offset})
		if err != nil {
			return nil, nil, err
		}
		for _, s := range page.Sandboxes {
			if s.Name == "" || s.User == nil || s.User.ID != principal || s.Status == "failed" {
				continue
			}
			switch {
			case !sandboxAlias.MatchString(s.Name), strings.HasPrefix(s.Name, "sbx_"), s.Name == "localhost", net.ParseIP(s.Name) != nil:
				skipped = append(skipped, fmt.Sprintf("the name %q is none for a host; reach that sandbox as %s", s.Name, s.SandboxID))
			case s.Name == alias || taken[s.Name]:
				skipped = append(skipped, fmt.Sprintf("there is another host %s already; reach the sandbox of that name as %s", s.Name, s.SandboxID))
			case !slices.Contains(names, s.Name):
				names = append(names, s.Name)
			}
		}
		if offset += len(page.Sandboxes); len(page.Sandboxes) == 0 || offset >= page.Total {
			break
		}
	}
	slices.Sort(names)
	return names, skipped, nil
}

// knownHostsText is the file with the gateway's host keys.
func knownHostsText(alias string, hostKeys []string) ([]byte, error) {
	var b strings.Builder
	for _, line := range hostKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "the server names a host key that is none")
		}
		marker := ""
		if cert, ok := key.(*ssh.Certificate); ok {
			marker, key = "@cert-authority ", cert.SignatureKey
		}
		b.WriteString(marker + alias + " " + string(ssh.MarshalAuthorizedKey(key)))
	}
	return []byte(b.String()), nil
}

// resolve asks the user's ssh how it reaches the gateway, whose name may be one
// that only its configuration knows.
func (h *sshHosts) resolve(ctx context.Context, g gatewayAddress) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ask := func(options ...string) (map[string][]string, error) {
		if g.port != "" {
			options = append(options, "-p", g.port)
		}
		out, err := exec.CommandContext(ctx, "ssh", append(append([]string{"-G"}, options...), "--", g.host)...).Output()
		if err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "ssh -G %s did not say how the gateway is reached", g.host)
		}
		found := map[string][]string{}
		for line := range strings.Lines(string(out)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			found[key] = append(found[key], value)
		}
		return found, nil
	}
	is, err := ask()
	if err != nil {
		return err
	}
	plain, err := ask("-F", "none")
	if err != nil {
		return err
	}
	if len(is["hostname"]) == 1 && len(is["port"]) == 1 {
		h.host, h.port = is["hostname"][0], is["port"][0]
	}
	for _, key := range []struct {
		name, keyword string
		who           bool
	}{
		{"proxyjump", "ProxyJump", false}, {"proxycommand", "ProxyCommand", false},
		{"identityfile", "IdentityFile", true}, {"certificatefile", "CertificateFile", true},
		{"identityagent", "IdentityAgent", true}, {"identitiesonly", "IdentitiesOnly", true},
	} {
		if slices.Equal(is[key.name], plain[key.name]) {
			continue
		}
		for _, value := range is[key.name] {
			if strings.Contains(value, " ") && key.name != "proxycommand" {
				value = `"` + value + `"`
			}
			h.carried = append(h.carried, key.keyword+" "+value)
			if key.who {
				h.identity = append(h.identity, key.keyword+" "+value)
			}
		}
	}
	return nil
}

// sshPath writes a path as an ssh configuration on goos wants it: with forward
// slashes, in quotes where it has spaces, and with what would be a token of
// ssh escaped.
func sshPath(path, goos string) string {
	if goos == "windows" {
		path = strings.ReplaceAll(path, `\`, "/")
	}
	path = strings.ReplaceAll(path, "%", "%%")
	if strings.ContainsAny(path, " \t") {
		return `"` + path + `"`
	}
	return path
}
