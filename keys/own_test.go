package keys_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh/agent"

	"github.com/sandgate/sandgate/keys"
)

// serveAgent runs an agent with the private keys until the test ends.
func serveAgent(t *testing.T, private ...any) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, p := range private {
		if err := ring.Add(agent.AddedKey{PrivateKey: p, Comment: "from agent"}); err != nil {
			t.Fatal(err)
		}
	}
	return serve(t, func(c net.Conn) { _ = agent.ServeAgent(ring, c) })
}

// serve hands the connections to a unix socket to handle.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return socket
}

func write(t *testing.T, text string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOwnPublicKeys(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home [x]")
	_, onlyInAgent, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	both := ed25519.NewKeyFromSeed([]byte(strings.Repeat("\x04", 32))) // as testKey(t, 4)
	socket := serveAgent(t, onlyInAgent, both)

	write(t, line(testKey(t, 1))+" me@here\n", home, ".ssh", "id_ed25519.pub")
	write(t, "private", home, ".ssh", "id_ed25519")
	write(t, line(testKey(t, 1))+" copy\n", home, ".ssh", "id_copy.pub") // the same key is listed once
	write(t, "private", home, ".ssh", "id_copy")
	write(t, line(testKey(t, 2))+" friend\n", home, ".ssh", "friend.pub")
	write(t, line(testKey(t, 4))+" token\n", home, ".ssh", "token.pub") // the agent has it
	write(t, "no key\n", home, ".ssh", "rubbish.pub")
	write(t, line(testKey(t, 5))+"\n"+line(testKey(t, 6)), home, ".ssh", "two.pub")
	write(t, line(testKey(t, 7)), home, ".ssh", "authorized_keys")
	if err := os.Mkdir(filepath.Join(home, ".ssh", "dir.pub"), 0o700); err != nil {
		t.Fatal(err)
	}

	own, skipped := keys.OwnPublicKeys(t.Context(), home, socket)
	var got []string
	for _, k := range own {
		if k.Key.Fingerprint == "" {
			t.Errorf("no fingerprint: %+v", k)
		}
		got = append(got, strings.TrimPrefix(k.Source, home+"/.ssh/")+" "+k.Key.Comment)
	}
	for _, s := range skipped {
		got = append(got, "skipped "+strings.TrimPrefix(s.String(), home+"/.ssh/"))
	}
	want := []string{
		"id_copy.pub copy", "token.pub token", "ssh agent from agent",
		"skipped dir.pub: not a public key file",
		"skipped friend.pub: no private key beside it and none in the ssh agent, so it may not be yours",
		"skipped rubbish.pub: this is not a public key",
		"skipped two.pub: 2 public keys where one is expected",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOwnPublicKeysOfNobody(t *testing.T) {
	empty := t.TempDir()
	silent := serve(t, func(c net.Conn) { // reads and never answers
		var b [1]byte
		for {
			if _, err := c.Read(b[:]); err != nil {
				return
			}
		}
	})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx          context.Context
		home, socket string
		skipped      string
	}{
		"nothing":      {t.Context(), empty, "", ""},
		"no home":      {t.Context(), "", "", ""},
		"agent gone":   {t.Context(), empty, filepath.Join(empty, "gone"), "ssh agent: it does not answer on "},
		"agent silent": {t.Context(), empty, silent, "ssh agent: it does not tell its keys on "},
		"cancelled":    {cancelled, empty, silent, "ssh agent: it does not answer on "},
	} {
		t.Run(name, func(t *testing.T) {
			own, skipped := keys.OwnPublicKeys(c.ctx, c.home, c.socket)
			if len(own) != 0 || c.skipped == "" && len(skipped) != 0 {
				t.Fatal(own, skipped)
			}
			if c.skipped != "" && (len(skipped) != 1 || !strings.HasPrefix(skipped[0].String(), c.skipped)) {
				t.Fatal(skipped)
			}
		})
	}
}
