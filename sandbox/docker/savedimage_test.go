package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// savedImages lists the images of saved layers of a driver.
func savedImages(t *testing.T, d *docker.Driver) []string {
	t.Helper()
	list, err := engine(t).ImageList(t.Context(), client.ImageListOptions{
		Filters: make(client.Filters).Add("label", "sandgate.state="+d.State()).Add("label", "sandgate.saved"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, i := range list.Items {
		ids = append(ids, i.ID)
	}
	return ids
}

func removeImages(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		if _, err := engine(t).ImageRemove(context.Background(), id, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSavedImages follows the images of saved layers: made once, made again
// when somebody prunes them, gone with the layer or the last sandbox.
func TestSavedImages(t *testing.T) {
	b := boot(t, docker.Config{}, nil)
	b.sh(t, history)
	dir := b.save(t)
	for i, id := range []string{"second", "third"} {
		n := b.another(t, id, func(s *driver.Spec) { s.Rootfs.Saved = []string{dir} })
		n.sh(t, remains)
		images := savedImages(t, b.d)
		if len(images) != 1 {
			t.Fatalf("%d images for one layer", len(images))
		}
		if err := b.d.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got := savedImages(t, b.d); len(got) != 1 {
			t.Errorf("%d images are kept for the next sandbox", len(got))
		}
		if i == 0 {
			removeImages(t, images) // docker image prune
		}
	}

	// A layer that went without the driver leaves an image that is found.
	moved := dir + "-moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	lines, err := b.d.Leftovers(t.Context(), true)
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "saved layers that are gone") {
		t.Errorf("leftovers: %q, %v", lines, err)
	}
	// It works from another place as well, and Discard takes the image along.
	n := b.another(t, "fourth", func(s *driver.Spec) { s.Rootfs.Saved = []string{moved} })
	n.sh(t, remains)
	if err := b.d.Discard(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	if got := savedImages(t, b.d); len(got) != 1 {
		t.Errorf("%d images while a sandbox stands on one", len(got))
	}
	if err := b.d.Remove(t.Context(), "fourth"); err != nil {
		t.Fatal(err)
	}
	if got := savedImages(t, b.d); len(got) != 0 {
		t.Errorf("%d images of a layer that nobody needs", len(got))
	}
	if err := b.d.Discard(t.Context(), moved); err != nil {
		t.Errorf("discarded twice: %v", err)
	}
	s := spec(t, "fifth")
	s.Rootfs.Saved = []string{t.TempDir()}
	if err := b.d.Create(t.Context(), s); !fault.Is(err, fault.Invalid) {
		t.Errorf("created from no saved layer: %v", err)
	}
}

// TestSavedElsewhere carries a layer to an engine that has none of its images,
// through the neutral form.
func TestSavedElsewhere(t *testing.T) {
	b := boot(t, docker.Config{}, nil)
	b.sh(t, history)
	layer, entries := export(t, b.d, b.save(t))

	other := &box{d: open(t, docker.Config{StateDir: stateDir(t), Host: newFront(t, "tcp", "127.0.0.1:0").host})}
	t.Cleanup(func() { other.d.Close() })
	dir := filepath.Join(t.TempDir(), "imported")
	if err := other.d.Import(t.Context(), dir, strings.NewReader(string(layer)), 0); err != nil {
		t.Fatal(err)
	}
	if again, e := export(t, other.d, dir); e != entries || string(again) != string(layer) {
		t.Error("a layer that was imported is exported as another one")
	}
	n := other.another(t, "box", func(s *driver.Spec) { s.Rootfs.Saved = []string{dir} })
	n.sh(t, remains)
	short := filepath.Join(t.TempDir(), "short")
	if err := other.d.Import(t.Context(), short, strings.NewReader(string(layer)), 5); !fault.Is(err, fault.Exhausted) {
		t.Errorf("imported more than the limit: %v", err)
	}
	if _, err := os.Stat(short); !os.IsNotExist(err) {
		t.Errorf("a refused layer leaves %v", err)
	}
	if err := other.d.Import(t.Context(), dir, strings.NewReader(string(layer)), 0); !fault.Is(err, fault.Exists) {
		t.Errorf("imported over a layer: %v", err)
	}
}

// TestSavedOverHostDirs holds that a layer which knows nothing of host
// directories lies over them all the same, links across them included.
func TestSavedOverHostDirs(t *testing.T) {
	b := boot(t, docker.Config{}, nil)
	b.sh(t, `mkdir -p /mnt/deep /other && echo 1 >/mnt/a && ln /mnt/a /other/b && ln /mnt/a /mnt/deep/c && echo 2 >/mnt/deep/d &&
		ln /mnt/deep/d /mnt/deep/e && chown 7:8 /mnt && chmod 711 /mnt`)
	first := b.save(t)
	over := func(saved ...string) func(*driver.Spec) {
		return func(s *driver.Spec) {
			s.Rootfs.Saved = saved
			s.Rootfs.HostDirs = []driver.HostDir{{Source: shown, Target: "/mnt"}, {Source: shown, Target: "/mnt/deep"}}
		}
	}
	n := b.another(t, "second", over(first))
	n.sh(t, `[ "$(cat /mnt/a /other/b /mnt/deep/c | tr -d '\n')" = 111 ] && [ /mnt/deep/d -ef /mnt/deep/e ] && [ -s /mnt/README ] &&
		[ -s /mnt/deep/README ] && [ "$(stat -c %u:%g:%a /mnt)" = 7:8:711 ]`)
	n.sh(t, "rm /mnt/README /mnt/a && rm -r /mnt/deep/* && echo 3 >/mnt/deep/f && chmod 700 /mnt/deep && echo 4 >/g")
	second := n.save(t)
	_, entries := export(t, b.d, second)
	for _, want := range []string{"g 0 ", "mnt/.wh.README ", "mnt/.wh.a ", "mnt/deep/ 5 700 ", "mnt/deep/.wh.README ", "mnt/deep/f "} {
		if !strings.Contains("\n"+entries, "\n"+want) {
			t.Errorf("the layer lacks %q:\n%s", want, entries)
		}
	}
	third := b.another(t, "third", over(second, first))
	third.sh(t, `[ ! -e /mnt/README ] && [ ! -e /mnt/a ] && [ "$(ls /mnt/deep)" = f ] && [ "$(cat /g)" = 4 ] && [ -s /mnt/copyright ] &&
		[ "$(stat -c %u:%g:%a /mnt)" = 7:8:711 ] && [ "$(stat -c %a /mnt/deep)" = 700 ]`)
	if _, err := os.Stat(filepath.Join(shown, "README")); err != nil {
		t.Errorf("the host's own file: %v", err)
	}
	remote := open(t, docker.Config{StateDir: b.state, Host: newFront(t, "tcp", "127.0.0.1:0").host})
	defer remote.Close()
	if err := remote.Save(t.Context(), "third", filepath.Join(t.TempDir(), "saved")); !fault.Is(err, fault.Unsupported) {
		t.Errorf("host directories saved through the engine: %v", err)
	}
}

// TestSaveKeepsAttributes holds what reading files keeps and the engine drops.
func TestSaveKeepsAttributes(t *testing.T) {
	b := boot(t, docker.Config{}, func(s *driver.Spec) { s.Rootfs = debian(t) })
	b.sh(t, `cd /root && echo x >f && touch -d 2001-02-03T04:05:06.789 f && python3 -c 'import os; os.setxattr("f", "user.k", b"v")'`)
	n := b.another(t, "second", func(s *driver.Spec) { s.Rootfs = debian(t); s.Rootfs.Saved = []string{b.save(t)} })
	n.sh(t, `cd /root && [ "$(date -r f +%s.%N)" = "$(date -d 2001-02-03T04:05:06.789 +%s.%N)" ] &&
		python3 -c 'import os; assert os.getxattr("f", "user.k") == b"v"'`)
}
