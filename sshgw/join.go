package sshgw

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// joinUser is the user name under which an unregistered key may come in, to be
// registered on the strength of an invitation. Such a connection has proven its
// key and is nobody's: it has one kind of session, which asks for the code, and
// nothing else. It goes on counting as half open.
const joinUser = "join"

// Bounds of joining.
const (
	joinTime  = 2 * time.Minute // for typing a code
	joinTries = 3               // of one connection
	joinBurst = 10              // tries of one address at once, and then one in joinEvery
	joinEvery = 6 * time.Second
	joinAll   = 100 // tries of all addresses in a minute
	maxCode   = 256
)

// joinKey finds a joiner in gossh.Permissions.
type joinKey struct{}

// joiner is somebody with a key that nobody has registered, or with one that is.
type joiner struct {
	key   gossh.PublicKey
	known keys.Principal // whose key it is already; zero: nobody's
}

func joinerOf(perms *gossh.Permissions) (j joiner, ok bool) {
	if perms == nil {
		return joiner{}, false
	}
	j, ok = perms.ExtraData[joinKey{}].(joiner)
	return j, ok
}

// mayJoin makes the permissions of a key that is offered to join with. known is
// whose it is already.
func (c *conn) mayJoin(key gossh.PublicKey, known keys.Principal) (*gossh.Permissions, error) {
	if _, err := keys.FromPublicKey(key, ""); err != nil {
		return nil, c.refuse("", "sandgate: "+oneLine(err.Error()))
	}
	return &gossh.Permissions{ExtraData: map[any]any{joinKey{}: joiner{key, known}}}, nil
}

// joins reports whether a user name asks to join on this connection.
func (c *conn) joins(user string) bool {
	return user == joinUser && c.srv.cfg.Join != nil && c.jump == nil
}

// serveJoin serves the one channel of a connection that wants to join.
func (c *conn) serveJoin(sc *gossh.ServerConn, nc gossh.NewChannel, j joiner) {
	c.mu.Lock()
	first := !c.joining
	c.joining = true
	c.mu.Unlock()
	if nc.ChannelType() != "session" || !first {
		_ = nc.Reject(gossh.Prohibited, "sandgate: this connection is for joining alone")
		return
	}
	ch, requests, err := nc.Accept()
	if err != nil {
		return // the connection has ended
	}
	ctx, cancel := context.WithTimeout(c.ctx, joinTime)
	defer cancel()
	defer func() { _ = sc.Close() }()
	unhook := context.AfterFunc(ctx, func() { _ = ch.Close() })
	defer unhook()
	var run sync.WaitGroup
	defer run.Wait()
	tty, started := false, false
	for r := range requests {
		ok := false
		switch {
		case started:
		case r.Type == "pty-req":
			tty, ok = true, true
		case r.Type == "shell", r.Type == "exec":
			code := ""
			if r.Type == "exec" {
				if code, err = parseString(r.Payload); err != nil {
					break
				}
			}
			started, ok = true, true
			d := &joining{c: c, ch: ch, j: j, tty: tty, ctx: ctx}
			run.Go(func() {
				defer contain(c.log, "join", nil)
				defer func() { _ = ch.Close() }()
				_ = sendStatus(ch, d.run(code))
				_ = ch.CloseWrite()
			})
		}
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
	}
}

// joining is the session of somebody who joins.
type joining struct {
	c   *conn
	ch  gossh.Channel
	j   joiner
	tty bool
	ctx context.Context
}

func (d *joining) say(format string, args ...any) {
	end := "\n"
	if d.tty {
		end = "\r\n"
	}
	_, _ = io.WriteString(d.ch.Stderr(), "sandgate: "+fmt.Sprintf(format, args...)+end)
}

// run asks for a code, as long as there are tries, and returns the exit status.
func (d *joining) run(code string) int {
	fingerprint := gossh.FingerprintSHA256(d.j.key)
	if p := d.j.known; p.ID != "" {
		d.say("your key %s is registered already: you are %s (%s). Type: ssh gateway", fingerprint, p.ID, p.Role)
		return 0
	}
	d.c.turned = "no invitation code that is good was given"
	in := bufio.NewReaderSize(d.ch, maxCode)
	given := code != ""
	for try := 1; try <= joinTries; try++ {
		if !given {
			var err error
			if code, err = d.ask(in); err != nil {
				d.say("no code was given; ask who invited you for one")
				return exitNotStarted
			}
		}
		k, err := d.redeem(code)
		if err == nil {
			d.c.authenticated()
			d.c.emit(sandbox.AuditRecord{Kind: sandbox.AuditJoin, Principal: k.Principal, Role: string(k.Role), Key: k.Fingerprint})
			d.c.log.Info("ssh key joined", "principal", k.Principal, "key", k.Fingerprint)
			d.say("your key %s is registered: you are %s (%s). Type: ssh gateway", k.Fingerprint, k.Principal, k.Role)
			return 0
		}
		d.say("%s", strings.TrimPrefix(sayError(err), "sandgate: "))
		if given || !d.tty || !fault.Is(err, fault.Denied) {
			return exitNotStarted
		}
	}
	return exitNotStarted
}

// redeem tries a code, unless there were too many tries.
func (d *joining) redeem(code string) (keys.Key, error) {
	k, err := keys.FromPublicKey(d.j.key, "")
	if err != nil {
		return k, fault.Wrap(err, fault.Invalid, "%v", err)
	}
	if !d.c.srv.joinLimit.take(d.c.wire.RemoteAddr(), d.c.srv.cfg.Now()) {
		return k, fault.New(fault.Exhausted, "too many codes were tried; wait a minute")
	}
	k, err = d.c.srv.cfg.Join(d.ctx, code, k)
	if err != nil {
		d.c.log.Info("ssh join refused", "key", gossh.FingerprintSHA256(d.j.key), "err", quoted(err.Error()))
	}
	return k, err
}

var errNoCode = errors.New("no code")

// ask asks for a code.
func (d *joining) ask(in *bufio.Reader) (string, error) {
	if d.tty {
		_, _ = io.WriteString(d.ch, "Invitation code: ")
		defer func() { _, _ = io.WriteString(d.ch, "\r\n") }()
	}
	return readCode(in, d.tty)
}

// readCode reads a code: the first line of the input, or what is typed on a
// terminal, of which nothing is shown.
func readCode(in io.ByteReader, tty bool) (string, error) {
	var line []byte
	for {
		b, err := in.ReadByte()
		switch {
		case err != nil && (tty || len(line) == 0):
			return "", errNoCode
		case err != nil, b == '\n', b == '\r':
			if code := strings.TrimSpace(string(line)); code != "" || tty {
				return code, nil
			}
			return "", errNoCode
		case tty && (b == 'C'-'@' || b == 'D'-'@' && len(line) == 0):
			return "", errNoCode
		case tty && (b == 0x7f || b == '\b'):
			line = line[:max(len(line)-1, 0)]
		case tty && b == 'U'-'@':
			line = line[:0]
		case len(line) < maxCode:
			line = append(line, b)
		}
	}
}

// joinLimit bounds how many codes are tried, of one address and in all. The zero
// value is ready.
type joinLimit struct {
	mu      sync.Mutex
	sources map[netip.Prefix]*joinSource
	minute  time.Time
	all     int
}

type joinSource struct {
	tokens float64
	filled time.Time
}

// take takes one try; false when there is none left.
func (l *joinLimit) take(from net.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.minute) >= time.Minute {
		l.minute, l.all = now, 0
	}
	if l.all >= joinAll {
		return false
	}
	if l.sources == nil || len(l.sources) >= 4096 { // no more than some minutes of joinAll
		l.sources = map[netip.Prefix]*joinSource{}
	}
	p := sourceOf(from)
	s := l.sources[p]
	if s == nil {
		s = &joinSource{tokens: joinBurst, filled: now}
		l.sources[p] = s
	}
	if d := now.Sub(s.filled); d > 0 {
		s.tokens, s.filled = min(joinBurst, s.tokens+d.Seconds()/joinEvery.Seconds()), now
	}
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	l.all++
	return true
}
