package store

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// fill sets every field of the value, however deep, to something that is not
// zero and not like any other. A field that is added to a record and forgotten
// in its table fails the round trip.
func fill(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(epoch.Add(time.Duration(*n) * time.Hour)))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(fmt.Sprintf(`{"n":%d,"html":"<a&b>"}`, *n))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("ünï\x00\n'\"%d", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Interface:
		v.Set(reflect.ValueOf(float64(*n)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, n)
		fill(t, value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field, n)
		}
	default:
		t.Fatalf("fill does not know %s", v.Type())
	}
}

func filled[T any](t *testing.T) T {
	t.Helper()
	var v T
	n := 0
	fill(t, reflect.ValueOf(&v).Elem(), &n)
	return v
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func TestRoundTripSandbox(t *testing.T) {
	for name, want := range map[string]sandbox.Sandbox{
		"full":  filled[sandbox.Sandbox](t),
		"empty": {ID: "sbx_empty"},
		"empty containers": {
			ID: "sbx_empty", Env: map[string]string{}, Command: []string{}, Metadata: map[string]json.RawMessage{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			for _, id := range want.Layers {
				must(t, s.AddLayer(t.Context(), sandbox.Layer{ID: id}))
			}
			must(t, s.CreateSandbox(t.Context(), want, sandbox.Event{Type: sandbox.EventCreate}))
			got, err := s.Sandbox(t.Context(), want.ID)
			must(t, err)
			same(t, "created", got, want)

			page, total, err := s.Sandboxes(t.Context(), sandbox.SandboxFilter{})
			must(t, err)
			same(t, "listed", page, []sandbox.Sandbox{want})
			same(t, "total", total, 1)

			// Now the other way: everything set becomes empty and back.
			for i, next := range []sandbox.Sandbox{{ID: want.ID}, want} {
				next.UpdatedAt = epoch.AddDate(1, i, 0)
				written, err := s.UpdateSandbox(t.Context(), want.ID, func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
					*sb = next
					return nil, nil
				})
				must(t, err)
				same(t, "written", written, next)
				got, err := s.Sandbox(t.Context(), want.ID)
				must(t, err)
				same(t, "updated", got, next)
			}
		})
	}
}

func TestRoundTripExecution(t *testing.T) {
	s := openStore(t)
	want := filled[sandbox.Execution](t)
	create(t, s, newSandbox(want.SandboxID))
	must(t, s.CreateExecution(t.Context(), want))
	got, err := s.Execution(t.Context(), want.ID)
	must(t, err)
	same(t, "created", got, want)

	next := sandbox.Execution{ID: want.ID, SandboxID: want.SandboxID, Status: sandbox.ExecQueued}
	written, err := s.UpdateExecution(t.Context(), want.ID, func(x *sandbox.Execution) ([]sandbox.Event, error) {
		*x = next
		return nil, nil
	})
	must(t, err)
	same(t, "written", written, next)
	list, err := s.Executions(t.Context(), want.SandboxID, 0)
	must(t, err)
	same(t, "listed", list, []sandbox.Execution{next})
	list, err = s.OpenExecutions(t.Context())
	must(t, err)
	same(t, "open", list, []sandbox.Execution{next})
}

func TestRoundTripEvent(t *testing.T) {
	s := openStore(t)
	create(t, s, newSandbox("sbx_1"))
	want := filled[sandbox.Event](t)
	_, err := s.UpdateSandbox(t.Context(), "sbx_1", func(*sandbox.Sandbox) ([]sandbox.Event, error) {
		return []sandbox.Event{want, {Type: sandbox.EventDestroy}}, nil
	})
	must(t, err)
	events := checkEvents(t, s, "sbx_1")
	if len(events) != 3 {
		t.Fatalf("got %d events, want 3", len(events))
	}
	want.SandboxID, want.Seq, want.Owner, want.Position = "sbx_1", 2, "alice", 2
	same(t, "event", events[1], want)

	for _, c := range []struct {
		after int64
		limit int
		want  []sandbox.Event
	}{
		{0, 2, events[:2]}, {1, 0, events[1:]}, {1, 1, events[1:2]}, {3, 0, []sandbox.Event{}}, {-5, 1, events[:1]},
	} {
		got, err := s.Events(t.Context(), "sbx_1", c.after, c.limit)
		must(t, err)
		same(t, fmt.Sprintf("after %d, limit %d", c.after, c.limit), got, c.want)
	}
	_, err = s.Events(t.Context(), "sbx_1", 0, -1)
	wantCode(t, err, fault.Invalid)
}

func TestRoundTripKey(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	full, bare := filled[keys.Key](t), keys.Key{Fingerprint: "SHA256:bare"}
	must(t, s.AddKey(ctx, bare))
	must(t, s.AddKey(ctx, full))
	got, err := s.Key(ctx, full.Fingerprint)
	must(t, err)
	same(t, "key", got, full)
	list, err := s.Keys(ctx)
	must(t, err)
	same(t, "keys", list, []keys.Key{bare, full})

	wantCode(t, s.AddKey(ctx, full), fault.Exists)
	must(t, s.DeleteKey(ctx, full.Fingerprint))
	wantCode(t, s.DeleteKey(ctx, full.Fingerprint), fault.NotFound)
	_, err = s.Key(ctx, full.Fingerprint)
	wantCode(t, err, fault.NotFound)
	wantCode(t, s.TouchKey(ctx, full.Fingerprint, epoch), fault.NotFound)
}

func TestRoundTripAPIKey(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	full, bare := filled[keys.APIKey](t), keys.APIKey{ID: "key_bare"}
	must(t, s.AddAPIKey(ctx, bare))
	must(t, s.AddAPIKey(ctx, full))
	got, err := s.APIKeyByHash(ctx, full.Hash)
	must(t, err)
	same(t, "key", got, full)
	list, err := s.APIKeys(ctx)
	must(t, err)
	same(t, "keys", list, []keys.APIKey{bare, full})

	wantCode(t, s.AddAPIKey(ctx, full), fault.Exists)
	wantCode(t, s.AddAPIKey(ctx, keys.APIKey{ID: "key_other", Hash: full.Hash}), fault.Exists)
	must(t, s.DeleteAPIKey(ctx, full.ID))
	wantCode(t, s.DeleteAPIKey(ctx, full.ID), fault.NotFound)
	_, err = s.APIKeyByHash(ctx, full.Hash)
	wantCode(t, err, fault.NotFound)
	wantCode(t, s.TouchAPIKey(ctx, full.ID, epoch), fault.NotFound)
}

func TestTouch(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	must(t, s.AddKey(ctx, keys.Key{Fingerprint: "SHA256:x"}))
	must(t, s.AddAPIKey(ctx, keys.APIKey{ID: "key_x", Hash: "h"}))
	for _, c := range []struct{ at, want time.Time }{
		{epoch, epoch},
		{epoch.Add(touchEvery - 1), epoch}, // not worth a write
		{epoch.Add(touchEvery), epoch.Add(touchEvery)},
		{epoch, epoch.Add(touchEvery)}, // time is not turned back
	} {
		must(t, s.TouchKey(ctx, "SHA256:x", c.at))
		k, err := s.Key(ctx, "SHA256:x")
		must(t, err)
		same(t, "key", k.LastUsedAt, c.want)
		must(t, s.TouchAPIKey(ctx, "key_x", c.at))
		a, err := s.APIKeyByHash(ctx, "h")
		must(t, err)
		same(t, "API key", a.LastUsedAt, c.want)
	}
}
