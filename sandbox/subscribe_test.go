package sandbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (w *world) subscribe(who keys.Principal, ref string, after int64) *sandbox.Subscription {
	w.t.Helper()
	sub, err := w.engine.As(who).Subscribe(w.t.Context(), ref, after)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(sub.Close)
	return sub
}

// next returns the next notice, or fails the test.
func next(t *testing.T, sub *sandbox.Subscription) sandbox.Notice {
	t.Helper()
	select {
	case n, ok := <-sub.Events():
		if !ok {
			t.Fatal("the subscription has ended")
		}
		return n
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes")
	}
	panic("unreachable")
}

// over waits until a subscription has ended.
func over(t *testing.T, sub *sandbox.Subscription) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case _, ok := <-sub.Events():
			if !ok {
				return
			}
		case <-timeout:
			t.Fatal("the subscription goes on")
		}
	}
}

// log writes events to a sandbox, past the engine's operations and many at a
// time, to be quick.
func (w *world) log(id string, n int) {
	w.t.Helper()
	for ; n > 0; n -= 100 {
		_, err := w.store.UpdateSandbox(w.t.Context(), id, func(*sandbox.Sandbox) ([]sandbox.Event, error) {
			return make([]sandbox.Event, min(n, 100)), nil
		})
		if err != nil {
			w.t.Error(err)
			return
		}
	}
}

func TestSubscribe(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{}) // create, lifecycle:started
	all := w.subscribe(alice, s.ID, 0)
	later := w.subscribe(alice, s.ID, 1)
	now := w.subscribe(alice, s.ID, -1)
	x, _ := w.exec(alice, s.ID, "true")
	for i, want := range []string{"create", "lifecycle:started", "execution:started", "execution:ended"} {
		for name, c := range map[string]struct {
			sub  *sandbox.Subscription
			skip int
		}{"all": {all, 0}, "later": {later, 1}, "now": {now, 2}} {
			if i < c.skip {
				continue
			}
			if n := next(t, c.sub); string(n.Event.Type) != want || n.Event.Seq != int64(i+1) || n.Missed != 0 || n.Event.SandboxID != s.ID {
				t.Errorf("%s: notice %d is %+v, want %s", name, i, n, want)
			}
		}
	}
	if got := w.events(s.ID); len(got) != 4 {
		t.Errorf("events %v of %s", got, x.ID)
	}
	now.Close()
	now.Close()
	over(t, now)
	ctx, cancel := context.WithCancel(t.Context())
	sub, err := w.engine.As(alice).Subscribe(ctx, "", -1)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	over(t, sub)
	_, err = w.engine.As(bob).Subscribe(t.Context(), s.ID, 0)
	wantCode(t, err, fault.NotFound)
	_, err = w.engine.As(keys.Principal{}).Subscribe(t.Context(), "", 0)
	wantCode(t, err, fault.Denied)
	w.engine.Close()
	over(t, all)
	over(t, later)
}

// A member sees the events of their own sandboxes, an admin those of all.
func TestSubscribeToAll(t *testing.T) {
	w := newWorld(t)
	hers, his := w.create(alice, sandbox.CreateRequest{}), w.create(bob, sandbox.CreateRequest{})
	every, hersOnly := w.subscribe(admin, "", 0), w.subscribe(alice, "", 0)
	for range 3 {
		w.log(his.ID, 1)
		w.log(hers.ID, 1)
	}
	for i := range 10 {
		if n := next(t, every); n.Event.Position != int64(i+1) || n.Missed != 0 {
			t.Fatalf("notice %d: %+v", i, n)
		}
	}
	for i, want := range []int64{1, 2, 6, 8, 10} {
		if n := next(t, hersOnly); n.Event.Position != want || n.Event.SandboxID != hers.ID {
			t.Fatalf("notice %d: %+v", i, n)
		}
	}
	// It can be taken up where it broke off.
	again := w.subscribe(alice, "", 6)
	if n := next(t, again); n.Event.Position != 8 {
		t.Errorf("taken up at %+v", n)
	}
}

// Many events under many writers: those who read slowly, or not at all for a
// while, get all of one sandbox in order, and nobody is held up.
func TestSubscribeSlowly(t *testing.T) {
	const sandboxes, each = 3, 1200
	w := newWorld(t)
	var ids []string
	for range sandboxes {
		ids = append(ids, w.create(alice, sandbox.CreateRequest{}).ID)
	}
	var one []*sandbox.Subscription
	for _, id := range ids {
		one = append(one, w.subscribe(alice, id, 0))
	}
	asleep := w.subscribe(alice, ids[0], -1)
	every := w.subscribe(admin, "", 0)
	written := make(chan struct{}, sandboxes)
	for _, id := range ids {
		go func() {
			w.log(id, each)
			written <- struct{}{}
		}()
	}
	got := make(chan error, sandboxes+1)
	for i, sub := range one {
		go func() {
			for seq := int64(1); seq <= each+2; seq++ {
				n := next(t, sub)
				if n.Event.Seq != seq || n.Missed != 0 {
					got <- fmt.Errorf("sandbox %d: %+v where %d was to come", i, n, seq)
					return
				}
			}
			got <- nil
		}()
	}
	go func() {
		for at := int64(1); at <= sandboxes*(each+2); at++ {
			if n := next(t, every); n.Event.Position != at || n.Missed != 0 {
				got <- fmt.Errorf("all: %+v where %d was to come", n, at)
				return
			}
		}
		got <- nil
	}()
	for range sandboxes {
		<-written
	}
	for range sandboxes + 1 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	for seq := int64(3); seq <= each+2; seq++ {
		if n := next(t, asleep); n.Event.Seq != seq || n.Missed != 0 {
			t.Fatalf("who slept got %+v where %d was to come", n, seq)
		}
	}
}

// A subscriber to all that is very far behind is told how much it missed, and
// goes on with the present without a gap.
func TestSubscribeMissed(t *testing.T) {
	const many = 6_000
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	sub := w.subscribe(alice, "", -1)
	w.log(s.ID, 1)
	if n := next(t, sub); n.Event.Position != 3 {
		t.Fatalf("first %+v", n)
	}
	w.log(s.ID, many+1)
	missed := 0
	for at := int64(3); at < many+4; {
		n := next(t, sub)
		if n.Missed > 0 {
			missed++
		}
		if at += int64(n.Missed) + 1; n.Event.Position != at {
			t.Fatalf("%d missed, then position %d; %d was to come", n.Missed, n.Event.Position, at)
		}
		if missed == 0 && at == 4 { // it reads the first, and then nothing until all is written
			if err := w.waitHub(sub, many+4); err != nil {
				t.Fatal(err)
			}
		}
	}
	if missed != 1 {
		t.Errorf("told %d times that something was missed", missed)
	}
}

// waitHub waits until what is committed has reached another subscriber.
func (w *world) waitHub(_ *sandbox.Subscription, position int64) error {
	other := w.subscribe(admin, "", position-1)
	if n := next(w.t, other); n.Event.Position != position {
		return fmt.Errorf("position %d", n.Event.Position)
	}
	return nil
}

// Who loses the key loses the subscription.
func TestSubscribeAfterTheKeyIsGone(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	key, secret, err := w.engine.As(alice).AddAPIKey(t.Context(), keys.APIKey{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	who, err := w.engine.AuthenticateSecret(t.Context(), secret, "api")
	if err != nil {
		t.Fatal(err)
	}
	sub := w.subscribe(who, s.ID, -1)
	w.log(s.ID, 1)
	if n := next(t, sub); n.Event.Seq != 3 {
		t.Fatalf("%+v", n)
	}
	if err := w.engine.As(alice).DeleteAPIKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	w.now.advance(time.Minute)
	w.log(s.ID, 1)
	if n, ok := <-sub.Events(); ok {
		t.Errorf("still told: %+v", n)
	}
}

func TestEventHistoryOfAnActor(t *testing.T) {
	w := newWorld(t)
	hers, his := w.create(alice, sandbox.CreateRequest{}), w.create(bob, sandbox.CreateRequest{})
	w.log(hers.ID, 60)
	a := w.engine.As(alice)
	list, err := a.EventHistory(t.Context(), hers.ID, sandbox.EventQuery{})
	if err != nil || len(list) != 50 || list[0].Seq != 62 {
		t.Errorf("%d events, %v", len(list), err)
	}
	list, err = a.EventHistory(t.Context(), hers.ID, sandbox.EventQuery{Asc: true, Types: []sandbox.EventType{sandbox.EventCreate}})
	if err != nil || len(list) != 1 || list[0].Seq != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	list, err = a.EventHistory(t.Context(), "", sandbox.EventQuery{Limit: 100, Asc: true})
	if err != nil || len(list) != 62 {
		t.Errorf("%d events of her own, %v", len(list), err)
	}
	list, err = w.engine.As(admin).EventHistory(t.Context(), "", sandbox.EventQuery{Limit: 100, Asc: true})
	if err != nil || len(list) != 64 {
		t.Errorf("%d events of all, %v", len(list), err)
	}
	_, err = a.EventHistory(t.Context(), his.ID, sandbox.EventQuery{})
	wantCode(t, err, fault.NotFound)
	_, err = a.EventHistory(t.Context(), hers.ID, sandbox.EventQuery{Limit: 101})
	wantCode(t, err, fault.Invalid)
}
