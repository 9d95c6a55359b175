package sandbox_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestSetEnv(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Env: map[string]string{"A": "1", "B": "2"}})
	a := w.engine.As(alice)
	three := "3"
	env, err := a.SetEnv(t.Context(), s.ID, map[string]*string{"A": nil, "C": &three, "NONE": nil})
	if err != nil || !maps.Equal(env, map[string]string{"B": "2", "C": "3"}) {
		t.Fatalf("%v, %v", env, err)
	}
	if _, out := w.exec(alice, s.ID, "sh", "-c", "echo $A-$B-$C"); out != "-2-3\n" {
		t.Errorf("a command sees %q", out)
	}
	evs, err := a.Events(t.Context(), s.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range evs {
		if names, ok := ev.Data["env"]; ok && strings.Contains(strings.Join(strs(names), " "), "3") {
			t.Errorf("the event shows a value: %v", ev.Data)
		}
	}
	zero := "\x00"
	for name, bad := range map[string]map[string]*string{"name": {"A B": &three}, "value": {"A": &zero}} {
		if _, err := a.SetEnv(t.Context(), s.ID, bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := map[string]*string{}
	for i := range 256 {
		many["V"+strings.Repeat("x", i)] = &three
	}
	_, err = a.SetEnv(t.Context(), s.ID, many) // together with those it has
	wantCode(t, err, fault.Invalid)
	if env, err = a.SetEnv(t.Context(), s.ID, nil); err != nil || len(env) != 2 {
		t.Errorf("a refused change left %v, %v", env, err)
	}
}

func strs(v any) []string {
	var out []string
	for _, x := range v.([]any) {
		out = append(out, x.(string))
	}
	return out
}

func TestUpdate(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Name: "old"})
	w.create(alice, sandbox.CreateRequest{Name: "taken"})
	a := w.engine.As(alice)
	name, text := "new", "what it is for"
	got, err := a.Update(t.Context(), "old", sandbox.UpdateRequest{Name: &name, Description: &text, Timeouts: &sandbox.Timeouts{Idle: time.Minute, Paused: time.Hour}})
	if err != nil || got.Name != "new" || got.Description != text || got.Timeouts.Idle != time.Minute {
		t.Fatalf("%+v, %v", got, err)
	}
	taken, bad := "taken", "No Name"
	_, err = a.Update(t.Context(), "new", sandbox.UpdateRequest{Name: &taken})
	wantCode(t, err, fault.Exists)
	for field, u := range map[string]sandbox.UpdateRequest{
		"name": {Name: &bad}, "timeout": {Timeouts: &sandbox.Timeouts{Paused: -1}}, "timeout.paused": {Timeouts: &sandbox.Timeouts{Paused: 1 << 62}},
		"memory": {Limits: &sandbox.Limits{MemoryBytes: 1}}, "allow": {Network: &sandbox.Network{Allow: []string{"no rule"}}},
	} {
		_, err := a.Update(t.Context(), "new", u)
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.Invalid || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err = a.Update(t.Context(), "new", sandbox.UpdateRequest{Network: &sandbox.Network{}})
	wantCode(t, err, fault.State)
	_, err = w.engine.As(bob).Update(t.Context(), s.ID, sandbox.UpdateRequest{Description: &text})
	wantCode(t, err, fault.NotFound)

	// A pause that is under way takes the new timeout from its beginning.
	paused, err := a.Pause(t.Context(), s.ID)
	if err != nil || !paused.TerminatesAt.Equal(paused.PausedAt.Add(time.Hour)) {
		t.Fatalf("paused %+v, %v", paused, err)
	}
	for _, d := range []time.Duration{2 * time.Hour, 0} {
		got, err := a.Update(t.Context(), s.ID, sandbox.UpdateRequest{Timeouts: &sandbox.Timeouts{Paused: d}})
		if err != nil || d == 0 && !got.TerminatesAt.IsZero() || d > 0 && !got.TerminatesAt.Equal(paused.PausedAt.Add(d)) {
			t.Errorf("with %s it terminates at %s, %v", d, got.TerminatesAt, err)
		}
	}
	if got := w.events(s.ID); !slices.Contains(got, "update") {
		t.Errorf("events %v", got)
	}
}

func TestNetwork(t *testing.T) {
	book := &egressBook{}
	w := newWorld(t, func(c *sandbox.Config) {
		c.Egress = book
		c.Driver = networked{c.Driver.(*fake.Driver)}
	})
	s := w.create(alice, sandbox.CreateRequest{Network: true, Allow: []string{"github.com"}, Port: 8080})
	if s.Network == nil || s.Port != 8080 || !slices.Equal(book.allow[s.ID], []string{"github.com"}) || !w.host.Spec(s.ID).Network {
		t.Fatalf("made with %+v, port %d, rules %v", s.Network, s.Port, book.allow[s.ID])
	}
	a := w.engine.As(alice)
	if _, err := a.Update(t.Context(), s.ID, sandbox.UpdateRequest{Network: &sandbox.Network{Allow: []string{"*.npmjs.org"}}}); err != nil {
		t.Fatal(err)
	}
	// Whoever enforces the rules may have lost them.
	for name, again := range map[string]func(){
		"restart": func() { w.restart() },
		"resume": func() {
			if _, err := w.engine.As(alice).Pause(t.Context(), s.ID); err != nil {
				t.Fatal(err)
			}
			w.exec(alice, s.ID, "true")
		},
	} {
		book.allow = nil
		again()
		if !slices.Equal(book.allow[s.ID], []string{"*.npmjs.org"}) {
			t.Errorf("after a %s the rules are %v", name, book.allow[s.ID])
		}
	}
	// What could not be set is not recorded.
	book.fail = fault.New(fault.Unavailable, "nobody there")
	if _, err := w.engine.As(alice).Update(t.Context(), s.ID, sandbox.UpdateRequest{Network: &sandbox.Network{}}); !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
	if got, err := w.engine.As(alice).Get(t.Context(), s.ID); err != nil || len(got.Network.Allow) != 1 {
		t.Errorf("recorded %+v, %v", got.Network, err)
	}
	book.fail = nil
	book.in, book.out = 7, 9
	if u, err := w.engine.As(alice).Usage(t.Context(), s.ID); err != nil || u.NetIn != 7 || u.NetOut != 9 {
		t.Errorf("usage %+v, %v", u, err)
	}
	none := w.create(alice, sandbox.CreateRequest{})
	if _, set := book.allow[none.ID]; set || none.Network != nil {
		t.Errorf("a sandbox without network has %+v", none.Network)
	}
	for field, r := range map[string]sandbox.CreateRequest{
		"port": {Port: 80}, "allow": {Allow: []string{"github.com"}},
	} {
		_, err := w.engine.As(alice).Create(t.Context(), r)
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.Invalid || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	// A private network is opened by an admin alone.
	private := sandbox.CreateRequest{Network: true, Allow: []string{"10.1.0.0/16:5432"}}
	if _, err := w.engine.As(alice).Create(t.Context(), private); err == nil {
		t.Error("a member opened a private network")
	}
	w.create(admin, private)
}

// networked is the fake with sandboxes that are said to be connected.
type networked struct{ *fake.Driver }

func (d networked) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	caps, err := d.Driver.Capabilities(ctx)
	if err == nil {
		caps.Support[driver.FeatureNetwork] = driver.Support{OK: true}
	}
	return caps, err
}

func TestNoNetwork(t *testing.T) {
	w := newWorld(t)
	_, err := w.engine.As(alice).Create(t.Context(), sandbox.CreateRequest{Network: true})
	wantCode(t, err, fault.Unsupported)
	if w.host.Calls(fake.Create) != 0 {
		t.Error("the driver was asked all the same")
	}
}

// A server that ends between the change of a limit and the note of it leaves
// the limits that it has answered for.
func TestLimitsOfTheRecordHoldAfterACrash(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 1 * gi}})
	if err := fake.New(fake.Config{Host: w.host}).Resize(t.Context(), s.ID, driver.Limits{MemoryBytes: 2 * gi}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if got := w.host.Spec(s.ID).Limits.MemoryBytes; got != 1*gi {
		t.Errorf("after the restart it may have %d bytes", got)
	}
}
