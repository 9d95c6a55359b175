package drivertest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// benchmarkFiles measures files and archives through the guest of a running
// sandbox: large ones by their bytes, small ones by the thousand.
func benchmarkFiles(b *testing.B, conn *guest.Conn) {
	b.Helper()
	const large, many = 256 << 20, 10_000
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	// Half of it compresses, as of programs does.
	block := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(block[:len(block)/2]) // never fails
	b.Run("Write256M", func(b *testing.B) {
		b.SetBytes(large)
		for b.Loop() {
			_, err := conn.PutFile(b.Context(), "large", guest.WriteOptions{}, io.LimitReader(&repeated{block: block}, large))
			must(err)
		}
	})
	b.Run("Read256M", func(b *testing.B) {
		b.SetBytes(large)
		for b.Loop() {
			f, err := conn.OpenFile(b.Context(), "large", guest.ReadOptions{})
			must(err)
			_, err = io.Copy(io.Discard, f)
			must(err)
			must(f.Close())
		}
	})
	from := b.TempDir()
	writeMany(b, from, many)
	b.Run("CopyIn10000", func(b *testing.B) {
		for b.Loop() {
			_, err := conn.CopyIn(b.Context(), from, "many", guest.UploadOptions{})
			must(err)
		}
	})
	b.Run("List10000", func(b *testing.B) {
		for b.Loop() {
			_, err := conn.ListFiles(b.Context(), "many", guest.ListOptions{Recursive: true}, func(guest.FileInfo) error { return nil })
			must(err)
		}
	})
	for _, f := range []guest.Format{guest.Tar, guest.TarGz, guest.Zip} {
		b.Run("Download10000/"+string(f), func(b *testing.B) {
			for b.Loop() {
				_, err := conn.Download(b.Context(), "many", f, "", io.Discard)
				must(err)
			}
		})
		var archive bytes.Buffer
		_, err := conn.Download(b.Context(), "many", f, "", &archive)
		must(err)
		b.Run("Upload10000/"+string(f), func(b *testing.B) {
			for b.Loop() {
				_, err := conn.Upload(b.Context(), "copy", guest.UploadOptions{Format: f}, bytes.NewReader(archive.Bytes()))
				must(err)
			}
		})
		b.Run("Download256M/"+string(f), func(b *testing.B) {
			b.SetBytes(large)
			for b.Loop() {
				_, err := conn.Download(b.Context(), "large", f, "", io.Discard)
				must(err)
			}
		})
	}
	b.Run("Write", func(b *testing.B) { // one small file
		for b.Loop() {
			_, err := conn.PutFile(b.Context(), "small", guest.WriteOptions{}, bytes.NewReader(make([]byte, 1024)))
			must(err)
		}
	})
	b.Run("Remove10000", func(b *testing.B) {
		for b.Loop() {
			_, err := conn.RemoveDir(b.Context(), "many", guest.RemoveDirOptions{Recursive: true})
			must(err)
			b.StopTimer()
			_, err = conn.CopyIn(b.Context(), from, "many", guest.UploadOptions{})
			must(err)
			b.StartTimer()
		}
	})
}

// repeated reads the same block again and again.
type repeated struct {
	block []byte
	at    int
}

func (r *repeated) Read(b []byte) (int, error) {
	for n := 0; n < len(b); {
		copied := copy(b[n:], r.block[r.at:])
		r.at = (r.at + copied) % len(r.block)
		n += copied
	}
	return len(b), nil
}
