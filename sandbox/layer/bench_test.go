package layer

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkForms takes 100 MB in 1 MiB files through the forms.
func BenchmarkForms(b *testing.B) {
	needRoot(b)
	const files, size = 100, 1 << 20
	from := tree(b, files, size)
	neutral := export(b, from, Options{})
	var up bytes.Buffer
	must(b, ToUpper(b.Context(), bytes.NewReader(neutral), &up, Limits{}))
	to := filepath.Join(b.TempDir(), "to")
	for _, tt := range []struct {
		name string
		run  func() error
	}{
		{"WriteOverlay", func() error { return WriteOverlay(b.Context(), from, io.Discard, Options{}) }},
		{"ReadOverlay", func() error {
			if err := ReadOverlay(b.Context(), bytes.NewReader(neutral), to, Limits{}); err != nil {
				return err
			}
			return os.RemoveAll(to)
		}},
		{"ToUpper", func() error { return ToUpper(b.Context(), bytes.NewReader(neutral), io.Discard, Limits{}) }},
		{"FromUpper", func() error { return FromUpper(b.Context(), bytes.NewReader(up.Bytes()), io.Discard, Options{}) }},
		{"Entries", func() error { _, err := Entries(b.Context(), bytes.NewReader(neutral)); return err }},
	} {
		b.Run(tt.name, func(b *testing.B) {
			b.SetBytes(files * size)
			for b.Loop() {
				must(b, tt.run())
			}
		})
	}
}
