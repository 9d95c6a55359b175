package sandbox_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/driver/fake"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (w *world) write(who keys.Principal, ref, path, content string) {
	w.t.Helper()
	if err := w.engine.As(who).WriteFile(w.t.Context(), ref, sandbox.File{Path: path, Content: []byte(content)}); err != nil {
		w.t.Fatal(err)
	}
}

// read returns a file of a sandbox, "none" when there is none.
func (w *world) read(who keys.Principal, ref, path string) string {
	w.t.Helper()
	r, err := w.engine.As(who).ReadFile(w.t.Context(), ref, path)
	if fault.Is(err, fault.NotFound) {
		return "none"
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func (w *world) snapshot(who keys.Principal, ref string, r sandbox.SnapshotRequest) sandbox.Snapshot {
	w.t.Helper()
	p, err := w.engine.As(who).CreateSnapshot(w.t.Context(), ref, r)
	if err != nil {
		w.t.Fatalf("%v (%v)", err, fault.From(err).Cause)
	}
	return p
}

// savedFolders lists what lies on the disk of saved layers.
func (w *world) savedFolders() []string {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.dir, "saved", "fake"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// consistent fails the test unless the folders are those of the records, and
// every record is named by something.
func (w *world) consistent(want int) {
	w.t.Helper()
	all, err := w.store.Layers(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var ids []string
	for _, l := range all {
		ids = append(ids, l.ID)
	}
	slices.Sort(ids)
	if folders := w.savedFolders(); !slices.Equal(folders, ids) || len(ids) != want {
		w.t.Errorf("folders %v, records %v, want %d of both", folders, ids, want)
	}
}

func TestSnapshotAndCreate(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Name: "web", Env: map[string]string{"SECRET": "x"}})
	w.write(alice, "web", "a", "one")
	p := w.snapshot(alice, "web", sandbox.SnapshotRequest{Name: "Tools", Description: "d"})
	if p.Tag != "latest" || p.Owner != "alice" || p.SandboxID != s.ID || p.Files != 1 || p.SizeBytes != 3 || p.Driver != "fake" || p.Runtime.Name != "tiny:1" || p.Parent != "" {
		t.Errorf("%+v", p)
	}
	w.write(alice, "web", "a", "two")
	for _, ref := range []string{p.ID, "latest"} {
		made := w.create(alice, sandbox.CreateRequest{Snapshot: ref})
		if made.SnapshotID != p.ID || made.SnapshotTag != "latest" || !slices.Equal(made.Layers, []string{p.Layer}) || made.Runtime.Name != "tiny:1" || len(made.Env) != 0 {
			t.Errorf("%+v", made)
		}
		if got := w.read(alice, made.ID, "a"); got != "one" {
			t.Errorf("it has %q", got)
		}
	}
	if got := w.read(alice, "web", "a"); got != "two" {
		t.Errorf("the first has %q", got)
	}
	if evs := w.events(s.ID); !slices.Contains(evs, "snapshot:create") {
		t.Errorf("events %v", evs)
	}
	// A snapshot of a sandbox made from one lies on it.
	next := w.create(alice, sandbox.CreateRequest{Snapshot: p.ID})
	w.write(alice, next.ID, "b", "three")
	child := w.snapshot(alice, next.ID, sandbox.SnapshotRequest{Tag: "v2"})
	if child.Parent != p.ID {
		t.Errorf("parent %q", child.Parent)
	}
	last := w.create(alice, sandbox.CreateRequest{Snapshot: "v2"})
	if a, b := w.read(alice, last.ID, "a"), w.read(alice, last.ID, "b"); a != "one" || b != "three" || len(last.Layers) != 2 {
		t.Errorf("it has %q and %q on %v", a, b, last.Layers)
	}
	line, err := w.engine.As(alice).Lineage(t.Context(), "v2")
	if err != nil || len(line) != 2 || line[0].ID != child.ID || line[1].ID != p.ID {
		t.Errorf("lineage %+v, %v", line, err)
	}
	of, err := w.engine.As(alice).SandboxesOf(t.Context(), p.ID)
	if err != nil || len(of) != 3 {
		t.Errorf("made from it: %d, %v", len(of), err)
	}
	files, err := w.engine.As(alice).SnapshotFiles(t.Context(), "v2")
	if err != nil || !slices.ContainsFunc(files, func(c sandbox.Change) bool {
		return c.Path == "/workspace/b" && c.Size == 5 && c.Type == "file" && c.Kind == sandbox.Added
	}) {
		t.Errorf("files %+v, %v", files, err)
	}
	for field, r := range map[string]sandbox.CreateRequest{"snapshot": {Snapshot: "v2", Runtime: "tiny:1"}, "snapshot ": {Snapshot: "v2", RuntimeID: "srt_tiny"}} {
		_, err := w.engine.As(alice).Create(t.Context(), r)
		if wantCode(t, err, fault.Invalid); fault.From(err).Field != strings.TrimSpace(field) {
			t.Errorf("field %q", fault.From(err).Field)
		}
	}
	w.consistent(2)
}

// TestSnapshotOfPaused takes a snapshot of a sandbox that sleeps, which does
// not wake it.
func TestSnapshotOfPaused(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	w.write(alice, s.ID, "a", "one")
	if _, err := w.engine.As(alice).Pause(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	starts := w.host.Calls(fake.Start)
	w.snapshot(alice, s.ID, sandbox.SnapshotRequest{})
	if now := w.status(s.ID, sandbox.Paused); now.Status != sandbox.Paused || w.host.Calls(fake.Start) != starts {
		t.Errorf("it was woken: %s", now.Status)
	}
	made := w.create(alice, sandbox.CreateRequest{Snapshot: "latest"})
	if got := w.read(alice, made.ID, "a"); got != "one" {
		t.Errorf("it has %q", got)
	}
	w.restart()
	if got := w.read(alice, made.ID, "a"); got != "one" {
		t.Errorf("after a restart it has %q", got)
	}
	if err := w.engine.As(alice).Delete(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	_, err := w.engine.As(alice).CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{})
	wantCode(t, err, fault.State)
	w.consistent(1)
}

func TestTags(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{})
	a := w.engine.As(alice)
	first := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{})
	second := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{})
	third := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{Tag: sandbox.NoTag})
	tags := func(want ...string) {
		t.Helper()
		for i, p := range []sandbox.Snapshot{first, second, third} {
			if now, err := a.Snapshot(t.Context(), p.ID); err != nil || now.Tag != want[i] {
				t.Errorf("snapshot %d has the tag %q, want %q (%v)", i, now.Tag, want[i], err)
			}
		}
	}
	tags("", "latest", "")
	if _, err := a.TagSnapshot(t.Context(), "latest", "v1.0"); err != nil {
		t.Fatal(err)
	}
	tags("", "v1.0", "")
	if _, err := a.TagSnapshot(t.Context(), third.ID, "v1.0"); err != nil {
		t.Fatal(err)
	}
	tags("", "", "v1.0")
	if p, err := a.TagSnapshot(t.Context(), "v1.0", ""); err != nil || p.Tag != "" {
		t.Fatal(p, err)
	}
	tags("", "", "")
	for _, bad := range []string{"a b", ".x", "-x", "snp_abc", "sbx_abc", "a/b", strings.Repeat("x", 129), "ä"} {
		_, err := a.TagSnapshot(t.Context(), first.ID, bad)
		if wantCode(t, err, fault.Invalid); fault.From(err).Field != "tag" {
			t.Errorf("%q: field %q", bad, fault.From(err).Field)
		}
		_, err = a.CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{Tag: bad})
		wantCode(t, err, fault.Invalid)
	}
	for field, r := range map[string]sandbox.SnapshotRequest{
		"name": {Name: "a\nb"}, "description": {Description: strings.Repeat("x", 2000)}, "project": {Project: "a b"}, "org": {Org: "/"},
	} {
		_, err := a.CreateSnapshot(t.Context(), s.ID, r)
		if wantCode(t, err, fault.Invalid); fault.From(err).Field != field {
			t.Errorf("%s: field %q", field, fault.From(err).Field)
		}
	}
	w.consistent(3)
}

// TestSnapshotsOfOthers: a private one does not exist for others; a public one
// can be used by its id, and changed by nobody else.
func TestSnapshotsOfOthers(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice, sandbox.CreateRequest{Project: "p"})
	w.write(alice, s.ID, "a", "one")
	private := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{Tag: "mine", Project: "p"})
	public := w.snapshot(alice, s.ID, sandbox.SnapshotRequest{Tag: "ours", Public: true, Project: "p"})
	for _, who := range []keys.Principal{bob, {}} {
		b := w.engine.As(who)
		for name, ref := range map[string]string{"private": private.ID, "missing": "snp_aaaaaaaaaaaa", "tag": "mine", "public tag": "ours", "empty": ""} {
			_, err := b.Snapshot(t.Context(), ref)
			wantCode(t, err, fault.NotFound)
			if want := `no snapshot "` + ref + "\"; `snapshot list` shows yours"; err.Error() != want {
				t.Errorf("%s: %q, want %q", name, err, want)
			}
			wantCode(t, b.DeleteSnapshot(t.Context(), ref, true), fault.NotFound)
			_, err = b.TagSnapshot(t.Context(), ref, "x")
			wantCode(t, err, fault.NotFound)
			_, err = b.SnapshotFiles(t.Context(), ref)
			wantCode(t, err, fault.NotFound)
			wantCode(t, b.ExportSnapshot(t.Context(), ref, io.Discard), fault.NotFound)
			if who.ID != "" && ref != "" {
				_, err = b.Create(t.Context(), sandbox.CreateRequest{Snapshot: ref})
				wantCode(t, err, fault.NotFound)
			}
		}
		p, err := b.Snapshot(t.Context(), public.ID)
		if err != nil || p.SandboxID != "" || p.Project != "" || p.Tag != "ours" {
			t.Errorf("%+v, %v", p, err)
		}
		wantCode(t, b.DeleteSnapshot(t.Context(), public.ID, true), fault.Denied)
		_, err = b.TagSnapshot(t.Context(), public.ID, "x")
		wantCode(t, err, fault.Denied)
		for _, c := range []struct {
			f    sandbox.SnapshotFilter
			want int
		}{{sandbox.SnapshotFilter{}, 0}, {sandbox.SnapshotFilter{Public: true}, 1}, {sandbox.SnapshotFilter{Owner: "alice"}, 0}, {sandbox.SnapshotFilter{Owner: "alice", Public: true}, 0}, {sandbox.SnapshotFilter{Public: true, Sandbox: s.ID}, 0}} {
			if got, n, err := b.Snapshots(t.Context(), c.f); err != nil || n != c.want || len(got) != c.want {
				t.Errorf("%+v: %d, %v", c.f, n, err)
			}
		}
		_, err = b.CreateSnapshot(t.Context(), s.ID, sandbox.SnapshotRequest{})
		wantCode(t, err, fault.NotFound)
	}
	made := w.create(bob, sandbox.CreateRequest{Snapshot: public.ID})
	if got := w.read(bob, made.ID, "a"); got != "one" {
		t.Errorf("it has %q", got)
	}
	child := w.snapshot(bob, made.ID, sandbox.SnapshotRequest{})
	// Whose it is may not be deleted over the heads of others, and does not
	// learn who they are.
	err := w.engine.As(alice).DeleteSnapshot(t.Context(), public.ID, true)
	if wantCode(t, err, fault.State); strings.Contains(err.Error(), made.ID) || strings.Contains(err.Error(), child.ID) {
		t.Errorf("it tells too much: %v", err)
	}
	if of, err := w.engine.As(alice).SandboxesOf(t.Context(), public.ID); err != nil || len(of) != 0 {
		t.Errorf("others' sandboxes are shown: %v, %v", of, err)
	}
	if line, err := w.engine.As(bob).Lineage(t.Context(), child.ID); err != nil || len(line) != 2 {
		t.Errorf("%v, %v", line, err)
	}
	if all, n, err := w.engine.As(admin).Snapshots(t.Context(), sandbox.SnapshotFilter{SortBy: "name"}); err != nil || n != 3 || len(all) != 3 {
		t.Errorf("an admin sees %d, %v", n, err)
	}
}
