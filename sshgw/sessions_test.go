package sshgw

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// liveSession stands in for a session of the Engine: a process of the guest
// agent with any number of clients. Its redrawing is to clear the screen and
// print again what was printed.
type liveSession struct {
	b       *boxes
	process *guest.Process
	done    chan struct{} // closed when it has ended
	exit    guest.Exit
	err     error

	mu      sync.Mutex
	record  sandbox.Session
	shown   []byte
	clients []*sessionClient
}

// sessionClient is one client's end.
type sessionClient struct {
	*guest.Process
	live     *liveSession
	r        sandbox.SessionRequest
	out      guest.Output
	created  bool
	once     sync.Once
	why      error         // valid once detached is closed
	detached chan struct{} // closed when it is
}

func (b *box) OpenSession(ctx context.Context, ref string, r sandbox.SessionRequest, out guest.Output) (sandbox.SessionProcess, error) {
	if err := b.ready(ctx, ref); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	live := b.live(r.Name)
	switch {
	case live == nil && r.Open == sandbox.OpenAttach:
		return nil, fault.New(fault.NotFound, "no session %q; `session list` shows them", r.Name)
	case live != nil && r.Open == sandbox.OpenCreate:
		return nil, fault.New(fault.Exists, "there is a session %q already", r.Name)
	case live != nil && r.Command.User != "" && r.Command.User != cmp.Or(live.session().User, rootUser):
		err := fault.New(fault.State, "session %q runs as another", r.Name)
		err.Field = "user"
		return nil, err
	}
	c := &sessionClient{r: r, out: out, detached: make(chan struct{})}
	if live == nil {
		var err error
		if live, err = b.newSession(ctx, r); err != nil {
			return nil, err
		}
		c.created = true
	}
	c.live, c.Process = live, live.process
	live.join(c, b.who.ID)
	return c, nil
}

// live finds a live session. The caller holds mu.
func (b *boxes) live(name string) *liveSession {
	for _, l := range b.sessions {
		if r := l.session(); r.Status != sandbox.SessionEnded && (r.Name == name || r.ID == name) {
			return l
		}
	}
	return nil
}

func (b *box) newSession(ctx context.Context, r sandbox.SessionRequest) (*liveSession, error) {
	b.nextID++
	l := &liveSession{b: b.boxes, done: make(chan struct{})}
	l.record = sandbox.Session{ID: "ses_" + strconv.Itoa(b.nextID), SandboxID: "sbx_alice", Name: r.Name, Owner: b.who.ID, User: r.Command.User, Status: sandbox.SessionAttached, CreatedAt: time.Now()}
	for n := 1; l.record.Name == ""; n++ {
		if name := "s" + strconv.Itoa(n); b.live(name) == nil {
			l.record.Name = name
		}
	}
	r.Command.ID = "proc_" + strconv.Itoa(b.nextID)
	b.requests = append(b.requests, r)
	var err error
	if l.process, err = b.conn.Start(ctx, r.Command, guest.Output{Stdout: l}); err != nil {
		return nil, err
	}
	b.sessions = append(b.sessions, l)
	go func() {
		defer close(l.done)
		l.exit, l.err = l.process.Wait(context.Background())
		l.mu.Lock()
		defer l.mu.Unlock()
		l.record.Status = sandbox.SessionEnded
	}()
	return l, nil
}

func (l *liveSession) session() sandbox.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record
}

// Write takes what the session prints.
func (l *liveSession) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = append(l.shown, p...)
	for _, c := range l.clients {
		_, _ = c.out.Stdout.Write(p)
	}
	return len(p), nil
}

// join adds a client. The others get to know.
func (l *liveSession) join(c *sessionClient, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range slices.Clone(l.clients) {
		switch {
		case c.r.Alone && other.r.Mode == sandbox.ViewControl:
			other.leave(fault.Wrap(sandbox.ErrDetached, fault.Cancelled, "%s took the session over", who))
		default:
			other.r.Notice(who + " is here too")
			c.r.Notice(other.r.From + " is here too")
		}
	}
	l.clients = slices.DeleteFunc(l.clients, (*sessionClient).gone)
	l.clients = append(l.clients, c)
	if c.r.Record {
		c.r.Notice("this session is recorded")
	}
	drawn := slices.Clone(l.shown)
	if !c.created {
		drawn = append([]byte("\x1b[H\x1b[2J"), drawn...)
	}
	if len(drawn) > 0 {
		_, _ = c.out.Stdout.Write(drawn)
	}
	l.settle()
}

// settle notes whether somebody controls the session. The caller holds mu.
func (l *liveSession) settle() {
	l.clients = slices.DeleteFunc(l.clients, (*sessionClient).gone)
	controlled := slices.ContainsFunc(l.clients, func(c *sessionClient) bool { return c.r.Mode == sandbox.ViewControl })
	switch {
	case l.record.Status == sandbox.SessionEnded:
	case controlled:
		l.record.Status, l.record.DetachedAt = sandbox.SessionAttached, time.Time{}
	case l.record.Status != sandbox.SessionDetached:
		l.record.Status, l.record.DetachedAt = sandbox.SessionDetached, time.Now()
	}
}

func (c *sessionClient) leave(why error) {
	c.once.Do(func() {
		c.why = why
		close(c.detached)
	})
}

func (c *sessionClient) gone() bool {
	select {
	case <-c.detached:
		return true
	default:
		return false
	}
}

func (c *sessionClient) Session() (sandbox.Session, bool) { return c.live.session(), c.created }

func (c *sessionClient) Kill(ctx context.Context) error { return c.Process.Hangup(ctx) }

func (c *sessionClient) Close() error {
	c.leave(sandbox.ErrDetached)
	c.live.mu.Lock()
	defer c.live.mu.Unlock()
	c.live.settle()
	return nil
}

func (c *sessionClient) Hangup(context.Context) error { return c.Close() }

func (c *sessionClient) Wait(ctx context.Context) (guest.Exit, error) {
	select {
	case <-c.live.done:
		return c.live.exit, c.live.err
	case <-c.detached:
		return guest.Exit{}, c.why
	case <-ctx.Done():
		return guest.Exit{}, ctx.Err()
	}
}

func (b *box) Sessions(_ context.Context, ref string, all bool) ([]sandbox.Session, error) {
	if err := b.may(ref); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []sandbox.Session
	for _, l := range b.sessions {
		if r := l.session(); all || r.Status != sandbox.SessionEnded {
			list = append(list, r)
		}
	}
	return list, nil
}

func (b *box) Session(_ context.Context, ref, name string) (sandbox.Session, error) {
	if err := b.may(ref); err != nil {
		return sandbox.Session{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.live(name); l != nil {
		return l.session(), nil
	}
	return sandbox.Session{}, fault.New(fault.NotFound, "no session %q", name)
}

func (b *box) DetachSession(_ context.Context, ref, name string) error {
	if err := b.may(ref); err != nil {
		return err
	}
	b.mu.Lock()
	l := b.live(name)
	b.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		c.leave(sandbox.ErrDetached)
	}
	l.settle()
	return nil
}

func (b *box) RenameSession(_ context.Context, ref, name, to string) (sandbox.Session, error) {
	if err := b.may(ref); err != nil {
		return sandbox.Session{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.live(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record.Name = to
	return l.record, nil
}

func (b *box) KillSession(context.Context, string, string) error {
	return fault.New(fault.Unsupported, "not for doors")
}

var _ sandbox.SessionOperations = (*box)(nil)
