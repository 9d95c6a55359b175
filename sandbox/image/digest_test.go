package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDigestSeesEveryChange(t *testing.T) {
	root, err := unpack(t, Bounds{}, tarOf(t, dir("d"), file("d/f", "content"), symlink("l", "d/f")))
	if err != nil {
		t.Fatal(err)
	}
	digest := func() string {
		s, err := digestTree(context.Background(), root)
		if err != nil {
			t.Fatal(err)
		}
		return s.digest
	}
	seen := map[string]string{digest(): "the start"}
	if again := digest(); seen[again] == "" {
		t.Error("the same tree has two digests")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	steps := []struct {
		what string
		do   func()
	}{
		{"other content", func() { must(os.WriteFile(filepath.Join(root, "d/f"), []byte("CONTENT"), 0o644)) }},
		{"other mode", func() { must(os.Chmod(filepath.Join(root, "d/f"), 0o4755)) }},
		{"other target", func() {
			must(os.Remove(filepath.Join(root, "l")))
			must(os.Symlink("d/g", filepath.Join(root, "l")))
		}},
		{"other name", func() { must(os.Rename(filepath.Join(root, "d/f"), filepath.Join(root, "d/g"))) }},
		{"one more", func() { must(os.Mkdir(filepath.Join(root, "e"), 0o755)) }},
		{"a line in a name", func() { must(os.Mkdir(filepath.Join(root, "e/\n\"x\" 40755 0 0 "), 0o755)) }},
	}
	for _, s := range steps {
		s.do()
		d := digest()
		if before, ok := seen[d]; ok {
			t.Errorf("%s has the same digest as %s", s.what, before)
		}
		seen[d] = s.what
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := digestTree(ctx, root); !errors.Is(err, context.Canceled) {
		t.Errorf("digest after cancel = %v", err)
	}
}
