package drivertest

import (
	"context"
	"io"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func dialTests() []test {
	return []test{
		{name: "Dial/Several", run: testDialSeveral},
		{name: "Dial/CloseKeepsProcesses", run: testDialCloseKeepsProcesses},
		{name: "Dial/CloseUnblocksRead", run: testDialCloseUnblocksRead},
		{name: "Dial/EndsWithSandbox", run: testDialEndsWithSandbox},
		{name: "Dial/ContextBoundsOpeningOnly", run: testDialContext},
		{name: "Dial/Stopped", run: testDialStopped},
	}
}

func testDialSeveral(t *testing.T, e *env) {
	b := e.boot(t)
	conns := []*guest.Conn{b.conn, connect(t, e.d, b.id), connect(t, e.d, b.id)}
	p, err := conns[0].Start(ctx(t), guest.Command{ID: newID(), Args: []string{"sleep", "1000"}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range conns {
		if err := c.Ping(ctx(t)); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
		if !running(t, c, p.ID()) {
			t.Errorf("stream %d does not see the process of the first", i)
		}
	}
	conns[1].Close()
	for _, i := range []int{0, 2} {
		if err := conns[i].Ping(ctx(t)); err != nil {
			t.Errorf("stream %d after the end of another: %v", i, err)
		}
	}
}

// running reports whether the guest has a live process of that id.
func running(t *testing.T, c *guest.Conn, id string) bool {
	t.Helper()
	list, err := c.List(ctx(t))
	if err != nil {
		t.Fatalf("list processes: %v", err)
	}
	for _, p := range list {
		if p.ID == id {
			return !p.Exited
		}
	}
	return false
}

func testDialCloseKeepsProcesses(t *testing.T, e *env) {
	b := e.boot(t)
	p, _ := b.background(t, "echo ready; read x; exit 42")
	b.conn.Close()
	<-b.conn.Done()

	b.conn = connect(t, e.d, b.id)
	if !running(t, b.conn, p.ID()) {
		t.Fatal("the process ended with the stream that started it")
	}
	again, err := b.conn.Attach(ctx(t), p.ID(), p.Offset(), guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if exit, err := again.Wait(ctx(t)); err != nil || exit.Code != 42 {
		t.Errorf("the process ended with %+v, %v", exit, err)
	}
}

func testDialCloseUnblocksRead(t *testing.T, e *env) {
	b := e.boot(t)
	stream, err := e.d.Dial(ctx(t), b.id)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, stream) // however it ends
	}()
	if err := stream.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	select {
	case <-ended:
	case <-ctx(t).Done():
		t.Fatal("Read is still blocked after Close")
	}
	if _, err := stream.Write([]byte("x")); err == nil {
		t.Error("Write on a closed stream succeeds")
	}
	_ = stream.Close() // a second Close must not panic or block
	b.ping(t)
}

func testDialEndsWithSandbox(t *testing.T, e *env) {
	b := e.boot(t)
	raw, err := e.d.Dial(ctx(t), b.id)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	b.stop(t, 0)
	select {
	case <-b.conn.Done():
	case <-ctx(t).Done():
		t.Error("the connection does not end with the sandbox")
	}
	finishes(t, "Read on a stream into a stopped sandbox", func() {
		_, _ = io.Copy(io.Discard, raw) // however it ends
	})
}

func testDialContext(t *testing.T, e *env) {
	b := e.boot(t)
	c, cancel := context.WithCancel(ctx(t))
	stream, err := e.d.Dial(c, b.id)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	conn, err := guest.Connect(ctx(t), stream)
	if err != nil {
		t.Fatalf("the stream ended with the context of its opening: %v", err)
	}
	defer conn.Close()
	if err := conn.Ping(ctx(t)); err != nil {
		t.Errorf("ping: %v", err)
	}
	_, err = e.d.Dial(c, b.id)
	wantCode(t, err, fault.Cancelled)
}

func testDialStopped(t *testing.T, e *env) {
	b := e.boot(t)
	b.stop(t, 0)
	_, err := e.d.Dial(ctx(t), b.id)
	wantCode(t, err, fault.State)
	e.wantState(t, b.id, driver.Stopped)
}
