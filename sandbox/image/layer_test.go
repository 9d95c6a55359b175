package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestVerifyFindsTampering(t *testing.T) {
	c := newCatalog(t, Config{HostRoot: fakeHost(t)})
	rootfs := provide(t, c, "host")
	if err := c.Verify(context.Background(), rootfs.Digest); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(rootfs.Layers[0], "etc", "ld.so.preload"), []byte("/evil.so"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := c.Verify(context.Background(), rootfs.Digest)
	if !fault.Is(err, fault.State) || !strings.Contains(err.Error(), "was changed on disk") {
		t.Errorf("Verify = %v, want code STATE", err)
	}
	for _, digest := range []string{"", "sha256:", "sha256:../../etc", "sha256:" + strings.Repeat("0", 64), strings.Repeat("x", 10_000)} {
		err := c.Verify(context.Background(), digest)
		if !fault.Is(err, fault.NotFound) || len(err.Error()) > 200 {
			t.Errorf("Verify(%.80q) = %v, want code NOT_FOUND", digest, err)
		}
		if err := c.Remove(context.Background(), digest); !fault.Is(err, fault.NotFound) {
			t.Errorf("Remove(%.80q) = %v, want code NOT_FOUND", digest, err)
		}
	}
}

func TestRemoveIsGuarded(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	users := make(map[string][]string)
	var usersErr error
	c := newCatalog(t, Config{
		HostRoot: fakeHost(t), Now: func() time.Time { return now },
		InUse: func(context.Context) (map[string][]string, error) { return users, usersErr },
	})
	ctx := context.Background()
	rootfs := provide(t, c, "host")

	if err := c.Remove(ctx, rootfs.Digest); !fault.Is(err, fault.Busy) || !strings.Contains(err.Error(), "a moment ago") {
		t.Errorf("Remove right after Provide = %v, want code BUSY", err)
	}
	now = now.Add(handOutGrace + time.Second)
	users[rootfs.Digest] = []string{"sbx_a", "sbx_b"}
	if err := c.Remove(ctx, rootfs.Digest); !fault.Is(err, fault.Busy) || !strings.Contains(err.Error(), "sbx_a") {
		t.Errorf("Remove of a used layer = %v, want code BUSY", err)
	}
	if layers, err := c.Layers(ctx); err != nil || len(layers) != 1 || len(layers[0].UsedBy) != 2 || !layers[0].Current {
		t.Errorf("Layers = %+v, %v", layers, err)
	}
	usersErr = errors.New("the database is away")
	if err := c.Remove(ctx, rootfs.Digest); err == nil {
		t.Error("Remove without knowing the users worked")
	}
	usersErr = nil
	delete(users, rootfs.Digest)
	if err := c.Verify(ctx, rootfs.Digest); err != nil {
		t.Fatalf("after refused removals: %v", err)
	}
	if err := c.Remove(ctx, rootfs.Digest); err != nil {
		t.Fatal(err)
	}
	if layers, err := c.Layers(ctx); err != nil || len(layers) != 0 {
		t.Errorf("Layers after Remove = %+v, %v", layers, err)
	}
	if again := provide(t, c, "host"); again.Digest != rootfs.Digest || !isRealDir(again.Layers[0]) {
		t.Errorf("after Remove Provide gave %+v", again)
	}

	lonely := newCatalog(t, Config{Dir: c.cfg.Dir})
	if err := lonely.Remove(ctx, rootfs.Digest); !fault.Is(err, fault.State) {
		t.Errorf("Remove by one who cannot know the users = %v, want code STATE", err)
	}
}

// A damaged layer is listed, so that somebody can remove it, and a runtime
// that stands for it is made again.
func TestDamagedLayerIsListed(t *testing.T) {
	ref := serveImage(t, nil, tarOf(t, minimalRoot()...))
	now := time.Now()
	cfg := Config{
		Dir: filepath.Join(t.TempDir(), "layers"), BaseImage: ref, Now: func() time.Time { return now },
		InUse: func(context.Context) (map[string][]string, error) { return nil, nil },
	}
	c := newCatalog(t, cfg)
	rootfs := provide(t, c, "base")
	if err := os.RemoveAll(rootfs.Layers[0]); err != nil {
		t.Fatal(err)
	}
	layers, err := c.Layers(context.Background())
	if err != nil || len(layers) != 1 || layers[0].Source != "damaged" {
		t.Errorf("Layers = %+v, %v", layers, err)
	}
	if rts, err := c.Runtimes(context.Background()); err != nil || rts[0].Ready {
		t.Errorf("a runtime without files is ready: %+v, %v", rts, err)
	}
	if again := provide(t, c, "base"); again.Digest != rootfs.Digest || c.Verify(context.Background(), again.Digest) != nil {
		t.Errorf("made again: %+v", again)
	}
	now = now.Add(time.Hour)
	if err := c.Remove(context.Background(), rootfs.Digest); err != nil {
		t.Error(err)
	}
}

func TestUnusableDir(t *testing.T) {
	occupied := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(occupied, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{Dir: filepath.Join(occupied, "layers")})
	if fault.CodeOf(err) != fault.Internal || !strings.Contains(err.Error(), "cannot be used for layers") {
		t.Errorf("New below a file = %v", err)
	}
	if os.Geteuid() != 0 {
		closed := filepath.Join(t.TempDir(), "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{Dir: filepath.Join(closed, "layers")}); !fault.Is(err, fault.Denied) {
			t.Errorf("New in a closed directory = %v, want code DENIED", err)
		}
	}
	asNobody(t)
}
