package sshgw

import (
	"slices"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// A client with nothing but encrypt-and-MAC gets in where that was asked for,
// and nowhere else. Those with something better do not notice.
func TestP29Compat(t *testing.T) {
	dial := func(g *gateway, mac string) error {
		config := g.clientConfig("box", "alice")
		// AES-GCM brings its own authentication.
		config.Ciphers, config.MACs = []string{gossh.CipherAES256CTR}, []string{mac}
		client, err := gossh.Dial("tcp", g.addr.String(), config)
		if err == nil {
			_ = client.Close()
		}
		return err
	}
	for _, compat := range []bool{false, true} {
		g := newGateway(t, func(c *Config) { c.Compat = compat })
		for _, mac := range []string{gossh.HMACSHA256ETM, gossh.HMACSHA512ETM} {
			if err := dial(g, mac); err != nil {
				t.Errorf("compat %v, %s: %v", compat, mac, err)
			}
		}
		for _, mac := range []string{gossh.HMACSHA256, gossh.HMACSHA512} {
			switch err := dial(g, mac); {
			case compat && err != nil:
				t.Errorf("%s: %v", mac, err)
			case !compat && (err == nil || !strings.Contains(err.Error(), "no common algorithm")):
				t.Errorf("%s without compat: %v", mac, err)
			}
		}
		if err := dial(g, gossh.InsecureHMACSHA196); err == nil {
			t.Errorf("compat %v: a MAC of SHA-1 was taken", compat)
		}
	}
	if !slices.Equal(macs(true)[:len(macs(false))], macs(false)) {
		t.Error("what is better comes first")
	}
}
