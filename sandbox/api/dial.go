package api

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// DialConfig is how Dial reaches a server. The zero value is fine for unix
// sockets and ssh.
type DialConfig struct {
	// APIKey is sent to http and https servers, "sgk_…".
	APIKey string
	// SSH is the ssh program; empty means "ssh" in PATH.
	SSH string
}

// Dial makes a client for the server at host. It connects with the first
// request. Host is one of
//
//	unix:///run/sandgate.sock     the server's socket on this machine
//	ssh://[user@]gateway[:port]   the gateway, with the key ssh would use
//	https://gateway[:port]        TCP, with an API key (http:// as well)
func Dial(host string, cfg DialConfig) (*Client, error) {
	u, err := url.Parse(host)
	if err != nil || u.Scheme == "" {
		return nil, badHost(host)
	}
	switch u.Scheme {
	case "unix":
		return dialUnix(host, u)
	case "ssh":
		return dialSSH(host, u, cfg)
	case "http", "https":
		if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, badHost(host)
		}
		c := NewClient(&http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16, DisableCompression: true, ForceAttemptHTTP2: true,
		})
		c.base, c.key, c.host = strings.TrimRight(u.String(), "/"), cfg.APIKey, host
		return c, nil
	}
	return nil, badHost(host)
}

func badHost(host string) error {
	return fault.InvalidField("host", "%q is not a server; write unix:///path/to/socket, ssh://[user@]gateway[:port] or https://gateway", clip(host))
}

func dialUnix(host string, u *url.URL) (*Client, error) {
	socket := path.Join(u.Host, u.Path) // unix://relative is taken, too
	if u.Host == "" {
		socket = u.Path
	}
	if socket == "" || socket == "/" {
		return nil, badHost(host)
	}
	c := NewClient(&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 16, DisableCompression: true,
	})
	c.host = host
	c.explain = func(err error) string {
		// "dial unix /path: connect: no such file or directory" says the path twice.
		why := strings.TrimPrefix(err.Error(), "dial unix "+socket+": ")
		return strings.TrimPrefix(why, "connect: ") + "; is `sandgate serve` running there?"
	}
	return c, nil
}
