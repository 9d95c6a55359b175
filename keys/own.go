package keys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

const (
	// agentTimeout bounds the talk with the ssh agent: one that hangs, or
	// whose other end is a forwarded connection that is gone, must not keep
	// a server from starting.
	agentTimeout = 2 * time.Second
	// maxOwn bounds the files and the agent's keys that are looked at.
	maxOwn = 100
)

// OwnKey is a public key of the user who runs the program.
type OwnKey struct {
	Key    Key    // as FromPublicKey makes it
	Source string // where it was found: a path, or "ssh agent"
}

// Skipped is a place where a public key of the user could have been.
type Skipped struct {
	Source string
	Reason string
}

// String says the source and the reason.
func (s Skipped) String() string { return s.Source + ": " + s.Reason }

// OwnPublicKeys finds the public keys of the user whose home directory is home:
// those of the agent that listens on agentSocket (empty: none), and the files
// ~/.ssh/*.pub. Such a file can also be the key of a friend, kept for some
// purpose. So one counts only when the private key lies beside it, or the agent
// has it. Each key is listed once. What is not taken is among the skipped.
//
// It only reads, and takes two seconds at most for an agent that does not answer.
func OwnPublicKeys(ctx context.Context, home, agentSocket string) ([]OwnKey, []Skipped) {
	var own []OwnKey
	var skipped []Skipped
	skip := func(source string, reason any) {
		skipped = append(skipped, Skipped{source, fmt.Sprint(reason)})
	}

	const fromAgent = "ssh agent"
	held := map[string]bool{} // fingerprints of the agent's keys
	inAgent, err := agentKeys(ctx, agentSocket)
	if err != nil {
		skip(fromAgent, err)
	}
	for _, k := range inAgent {
		key, err := FromPublicKey(k.pub, k.comment)
		if err != nil {
			skip(fromAgent, err)
			continue
		}
		held[key.Fingerprint] = true
	}

	listed := map[string]bool{}
	paths, _ := filepath.Glob(filepath.Join(escapeGlob(home), ".ssh", "*.pub")) // the pattern is well formed
	if home == "" {
		paths = nil
	}
	for _, path := range paths[:min(len(paths), maxOwn)] {
		key, err := readPublicKey(path)
		switch {
		case err != nil:
			skip(path, err)
		case listed[key.Fingerprint]:
		case !held[key.Fingerprint] && !exists(strings.TrimSuffix(path, ".pub")):
			skip(path, "no private key beside it and none in the ssh agent, so it may not be yours")
		default:
			listed[key.Fingerprint] = true
			own = append(own, OwnKey{key, path})
		}
	}
	for _, k := range inAgent {
		if key, err := FromPublicKey(k.pub, k.comment); err == nil && !listed[key.Fingerprint] {
			listed[key.Fingerprint] = true
			own = append(own, OwnKey{key, fromAgent})
		}
	}
	return own, skipped
}

// readPublicKey reads a file with one public key in it.
func readPublicKey(path string) (Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Key{}, plain(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxLine {
		return Key{}, errors.New("not a public key file")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Key{}, plain(err)
	}
	return ParseKey(string(text))
}

// plain takes the path out of an error that is shown beside it.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// agentKey is a key as an agent tells it.
type agentKey struct {
	pub     ssh.PublicKey
	comment string
}

// agentKeys asks the agent for its keys. No agent is no keys.
func agentKeys(ctx context.Context, socket string) ([]agentKey, error) {
	if socket == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("it does not answer on %s", socket)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })() // ends a read that would last longer
	list, err := agent.NewClient(conn).List()
	if err != nil {
		return nil, fmt.Errorf("it does not tell its keys on %s", socket)
	}
	var found []agentKey
	for _, k := range list[:min(len(list), maxOwn)] {
		if pub, err := ssh.ParsePublicKey(k.Blob); err == nil {
			found = append(found, agentKey{pub, k.Comment})
		}
	}
	return found, nil
}
