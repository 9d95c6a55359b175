package sshgw

import (
	"context"
	"net"

	"strconv"
	"sync"
	"testing"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

// boxes stands in for the Engine: one sandbox, sbx_alice named "box", that
// belongs to alice, with a real guest agent whose processes run on this host.
type boxes struct {
	workspace string
	agent     *agent.Agent

	mu     sync.Mutex
	conn   *guest.Conn
	name   string
	nextID int

	sessions []*liveSession
	requests []sandbox.SessionRequest // those that started a session

	// What the sandbox is, and what brings it up; see asleep.
	state   sandbox.Sandbox
	waking  func()
	refusal error
}

func newBoxes(tb testing.TB) *boxes {
	tb.Helper()
	b := &boxes{workspace: tb.TempDir(), name: "box", state: sandbox.Sandbox{ID: "sbx_alice", Name: "box", Status: sandbox.Idle}}
	b.agent = agent.New(agent.Config{Workspace: b.workspace, HangupGrace: 1e9, Program: ownProgram(tb)})
	host, inside := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = b.agent.Serve(context.Background(), inside)
	}()
	conn, err := guest.Connect(tb.Context(), host)
	if err != nil {
		tb.Fatal(err)
	}
	b.conn = conn
	tb.Cleanup(func() {
		_ = conn.Close()
		<-served
		b.agent.Shutdown() // what the test left running
	})
	return b
}

func (b *boxes) as(p keys.Principal) sandbox.Operations { return &box{boxes: b, who: p} }

// box is what one principal may do. What the gateway does not use is nil.
type box struct {
	sandbox.Operations
	*boxes
	who keys.Principal
}

func (b *boxes) setName(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name = name
}

// asleep makes the sandbox one that is not up. Whoever uses it calls waking,
// and it is up when that returns; without waking it refuses.
func (b *boxes) asleep(state sandbox.Sandbox, waking func(), refusal error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.waking, b.refusal = state, waking, refusal
}

// ready waits until the sandbox is up.
func (b *box) ready(ctx context.Context, ref string) error {
	if err := b.may(ref); err != nil {
		return err
	}
	b.mu.Lock()
	waking, refusal := b.waking, b.refusal
	b.mu.Unlock()
	if refusal != nil {
		return refusal
	}
	if waking != nil {
		waking()
		b.asleep(sandbox.Sandbox{ID: "sbx_alice", Name: "box", Status: sandbox.Idle}, nil, nil)
	}
	return ctx.Err()
}

// loseConn breaks the connection to the guest.
func (b *boxes) loseConn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.conn.Close()
}

// may answers as the Engine does: ids reach what one may use, names what one
// owns.
func (b *box) may(ref string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	byID, byName := ref == "sbx_alice", ref == b.name
	if !(byID && (b.who.ID == "alice" || b.who.IsAdmin()) || byName && b.who.ID == "alice") {
		return fault.New(fault.NotFound, "no sandbox %q", ref).About("sandbox")
	}
	return nil
}

func (b *box) Get(_ context.Context, ref string) (sandbox.Sandbox, error) {
	if err := b.may(ref); err != nil {
		return sandbox.Sandbox{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state, nil
}

func (b *box) Start(ctx context.Context, ref string, cmd guest.Command, out guest.Output) (sandbox.Process, error) {
	if err := b.ready(ctx, ref); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.nextID++
	cmd.ID = "proc_" + strconv.Itoa(b.nextID)
	conn := b.conn
	b.mu.Unlock()
	return conn.Start(ctx, cmd, out)
}

func (b *box) Dial(ctx context.Context, ref, network, address string) (guest.Stream, error) {
	if err := b.may(ref); err != nil {
		return nil, err
	}
	return b.conn.Dial(ctx, network, address)
}

var _ sandbox.Operations = (*box)(nil)
