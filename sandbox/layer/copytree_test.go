package layer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestCopyTree(t *testing.T) {
	from := sample(t)
	must(t, unix.Mknod(from+"/socket", unix.S_IFSOCK|0o600, 0))
	to := filepath.Join(t.TempDir(), "to")
	totals, err := CopyTree(t.Context(), from, to)
	must(t, err)
	same(t, "the copy", facts(t, to), facts(t, from))
	var bytes int64
	files := 0
	seen := make(map[uint64]bool)
	must(t, filepath.Walk(from, func(p string, i os.FileInfo, err error) error {
		var st unix.Stat_t
		must(t, unix.Lstat(p, &st))
		if !i.IsDir() {
			files++
		}
		if i.Mode().IsRegular() && !seen[st.Ino] {
			seen[st.Ino] = true
			bytes += i.Size()
		}
		return err
	}))
	if totals != (Totals{Bytes: bytes, Files: files}) {
		t.Errorf("%+v, want %d bytes in %d files", totals, bytes, files)
	}
	var st unix.Stat_t
	must(t, unix.Stat(to+"/sparse", &st))
	if st.Blocks*512 > 1<<20 {
		t.Errorf("a sparse file takes %d bytes of disk", st.Blocks*512)
	}
	if _, err := unix.Getxattr(to+"/opaque", "trusted.overlay.origin", nil); err == nil {
		t.Error("where a file came from is copied to where that is wrong")
	}
	if _, err := CopyTree(t.Context(), from, to); !fault.Is(err, fault.Exists) {
		t.Errorf("over another: %v", err)
	}
	same(t, "the copy after that", facts(t, to), facts(t, from))
}

// TestCopyTreeFull holds that a full disk leaves nothing and is called so.
func TestCopyTreeFull(t *testing.T) {
	from := sample(t)
	must(t, os.WriteFile(from+"/big", make([]byte, 4<<20), 0o600))
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	defer func() { must(t, unix.Unmount(disk, 0)) }()
	if _, err := CopyTree(t.Context(), from, disk+"/to"); !fault.Is(err, fault.Exhausted) {
		t.Errorf("copy: %v", err)
	}
	if left, _ := os.ReadDir(disk); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestCopyTreeAcross copies to another filesystem, where the kernel may not
// copy by itself.
func TestCopyTreeAcross(t *testing.T) {
	from := sample(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("another filesystem cannot be mounted here: %v", err)
	}
	defer func() { must(t, unix.Unmount(disk, 0)) }()
	_, err := CopyTree(t.Context(), from, disk+"/to")
	must(t, err)
	same(t, "the copy", facts(t, disk+"/to"), facts(t, from))
}

func tree(b *testing.B, files, size int) string {
	dir := b.TempDir()
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
	for i := range files {
		sub := filepath.Join(dir, fmt.Sprint(i%20))
		must(b, os.MkdirAll(sub, 0o755))
		must(b, os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), content, 0o644))
	}
	return dir
}

func BenchmarkCopyTree(b *testing.B) {
	for _, tt := range []struct{ files, size int }{{10, 1 << 20}, {1000, 10 << 10}, {500, 1 << 20}} {
		b.Run(fmt.Sprintf("%dx%dKiB", tt.files, tt.size>>10), func(b *testing.B) {
			from := tree(b, tt.files, tt.size)
			b.SetBytes(int64(tt.files * tt.size))
			to := filepath.Join(b.TempDir(), "to")
			var copying time.Duration
			for b.Loop() {
				begin := time.Now()
				_, err := CopyTreeNoSync(b.Context(), from, to)
				must(b, err)
				copying += time.Since(begin)
				must(b, Sync(to))
				must(b, os.RemoveAll(to))
			}
			b.ReportMetric(copying.Seconds()*1e3/float64(b.N), "copy-ms/op")
		})
	}
}
