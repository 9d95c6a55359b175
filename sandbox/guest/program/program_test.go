package program_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandgate/sandgate/sandbox/guest/embedded"
	"github.com/sandgate/sandgate/sandbox/guest/program"
)

// want is the content that Install must have put down in this binary.
func want(t *testing.T) []byte {
	t.Helper()
	if b := embedded.Binary(); b != nil {
		return b
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "guests")
	path, digest, err := program.Install(dir)
	if err != nil {
		t.Fatal(err)
	}
	content := want(t)
	sum := sha256.Sum256(content)
	if digest != hex.EncodeToString(sum[:]) {
		t.Errorf("digest %s is not that of the program", digest)
	}
	if path != filepath.Join(dir, digest, "guest") {
		t.Errorf("path %s", path)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(content) {
		t.Errorf("installed %d bytes (%v), want %d", len(got), err, len(content))
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if before.Mode() != 0o555 {
		t.Errorf("mode %v", before.Mode())
	}

	path2, digest2, err := program.Install(dir)
	if err != nil || path2 != path || digest2 != digest {
		t.Fatalf("second install: %s %s %v", path2, digest2, err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the second install wrote the file anew (%v)", err)
	}
}

func TestInstallRepairs(t *testing.T) {
	dir := t.TempDir()
	path, _, err := program.Install(dir)
	if err != nil {
		t.Fatal(err)
	}
	// A host that crashed at the wrong moment, or a person.
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if _, _, err := program.Install(dir); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != string(want(t)) {
		t.Errorf("the damaged program was left: %d bytes", len(got))
	}
}

func TestInstallParallel(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, _, err := program.Install(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	left, err := filepath.Glob(filepath.Join(dir, "*", ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestInstallUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := program.Install(filepath.Join(file, "guests")); err == nil {
		t.Error("installed below a file")
	}
}

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	_, digest, err := program.Install(dir)
	if err != nil {
		t.Fatal(err)
	}
	used, unused := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for _, name := range []string{used, unused, "not-ours"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := program.Keep(dir, []string{digest, used}); err != nil {
		t.Fatal(err)
	}
	for name, keep := range map[string]bool{digest: true, used: true, "not-ours": true, unused: false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != keep {
			t.Errorf("%s: kept %v, want %v", name, err == nil, keep)
		}
	}
	if err := program.Keep(filepath.Join(dir, "missing"), nil); err != nil {
		t.Errorf("a missing directory: %v", err)
	}
}
