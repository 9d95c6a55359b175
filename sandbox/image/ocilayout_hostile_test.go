package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// repack changes files of an archive and then puts the digests right, so that
// what is refused is not refused for them. change gets the JSON of documents.
func repack(t testing.TB, content []byte, change func(name string, b []byte, doc map[string]any) ([]byte, map[string]any)) []byte {
	t.Helper()
	files := untar(t, content)
	renamed := map[string]string{}
	fix := func(b []byte) []byte {
		for from, to := range renamed {
			b = bytes.ReplaceAll(b, []byte(from), []byte(to))
		}
		return b
	}
	// From what is named to what names it: layers, configuration, manifest, index.
	rank := func(name string) int {
		b := files[name]
		switch {
		case name == indexFile || name == dockerFile || name == layoutFile:
			return 3
		case bytes.Contains(b, []byte(`"layers":[`)):
			return 2
		case bytes.HasPrefix(b, []byte("{")):
			return 1
		}
		return 0
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return rank(a)*1000 - rank(b)*1000 + strings.Compare(a, b) })
	var out []tarEntry
	sizes := map[string]int{}
	for _, name := range names {
		was := files[name]
		b := fix(was)
		var doc map[string]any
		if bytes.HasPrefix(b, []byte("{")) {
			if err := json.Unmarshal(b, &doc); err != nil {
				t.Fatal(err)
			}
		}
		b, doc = change(name, b, doc)
		if doc != nil {
			for _, d := range append(append(list(doc["layers"]), list(doc["manifests"])...), doc["config"]) {
				if m, ok := d.(map[string]any); ok && m["digest"] != nil {
					if n, ok := sizes[m["digest"].(string)]; ok {
						m["size"] = n
					}
				}
			}
			var err error
			if b, err = json.Marshal(doc); err != nil {
				t.Fatal(err)
			}
		}
		if from, ok := strings.CutPrefix(name, blobsPrefix); ok {
			to := strings.TrimPrefix(digestOf(b), "sha256:")
			sizes["sha256:"+to] = len(b)
			if rank(name) > 0 { // a layer keeps its name as diff id
				renamed[from] = to
			} else if from != to {
				renamed[`"digest":"sha256:`+from] = `"digest":"sha256:` + to
			}
			name = blobsPrefix + to
		}
		out = append(out, file(name, string(b)))
	}
	return tarOf(t, out...)
}

func TestHostileArchives(t *testing.T) {
	a, parts := sampleArchive(t)
	good := writeArchive(t, a)
	annotate := func(key, value string) []byte {
		return repack(t, good, func(_ string, b []byte, doc map[string]any) ([]byte, map[string]any) {
			if notes, ok := doc["annotations"].(map[string]any); ok && doc["layers"] != nil {
				notes[key] = value
			}
			return b, doc
		})
	}
	layers := func(change func(l map[string]any)) []byte {
		return repack(t, good, func(_ string, b []byte, doc map[string]any) ([]byte, map[string]any) {
			for _, l := range list(doc["layers"]) {
				change(l.(map[string]any))
			}
			return b, doc
		})
	}
	with := func(extra ...tarEntry) []byte {
		var all []tarEntry
		for name, b := range untar(t, good) {
			all = append(all, file(name, string(b)))
		}
		return tarOf(t, append(all, extra...)...)
	}
	without := func(what string) []byte {
		var all []tarEntry
		for name, b := range untar(t, good) {
			if name != what {
				all = append(all, file(name, string(b)))
			}
		}
		return tarOf(t, all...)
	}
	if _, err := readArchive(t, repack(t, good, func(_ string, b []byte, doc map[string]any) ([]byte, map[string]any) { return b, doc })); err != nil {
		t.Fatalf("the tool of this test spoils archives: %v", err)
	}
	base := strings.TrimPrefix(digestOf(parts[0]), "sha256:")
	for name, content := range map[string][]byte{
		"nothing":              nil,
		"no archive":           []byte(strings.Repeat("x", 2000)),
		"cut off":              good[:len(good)/2],
		"climbs":               with(file("../../etc/passwd", "x")),
		"absolute":             with(file("/etc/passwd", "x")),
		"another name":         with(file("blobs/sha256/../../x", "x")),
		"another algorithm":    with(file("blobs/sha512/"+base, "x")),
		"link":                 with(symlink("blobs/sha256/"+strings.Repeat("c", 64), "/etc/passwd")),
		"hard link":            with(hardlink("blobs/sha256/"+strings.Repeat("c", 64), "/etc/passwd")),
		"device":               with(tarEntry{tar.Header{Name: blobsPrefix + strings.Repeat("c", 64), Typeflag: tar.TypeChar}, ""}),
		"twice":                with(file(indexFile, "{}")),
		"wrong digest":         with(file(blobsPrefix+strings.Repeat("c", 64), "x")),
		"no layout":            without(layoutFile),
		"no index":             without(indexFile),
		"no layer":             without(blobsPrefix + base),
		"no version":           annotate(annotationVersion, "2"),
		"no runtime":           annotate(annotationRuntime, "[]"),
		"bad runtime":          annotate(annotationRuntime, `{"id":"srt_x","name":"../../x","digest":"sha256:`+base+`"}`),
		"bad digest":           annotate(annotationRuntime, `{"id":"srt_x","name":"x","digest":"sha256:../../etc"}`),
		"no base":              annotate(annotationBase, "perhaps"),
		"long":                 annotate("x", strings.Repeat("x", maxAnnotated+1)),
		"layer elsewhere":      layers(func(l map[string]any) { l["digest"] = "sha256:" + strings.Repeat("d", 64) }),
		"layer climbs":         layers(func(l map[string]any) { l["digest"] = "sha256:../../../../etc/passwd" }),
		"layer of another sum": layers(func(l map[string]any) { l["digest"] = "md5:" + strings.Repeat("d", 32) }),
		"unknown form":         layers(func(l map[string]any) { l["mediaType"] = "application/vnd.oci.image.layer.v1.tar+zstd" }),
		"two images": repack(t, good, func(name string, b []byte, doc map[string]any) ([]byte, map[string]any) {
			if m := list(doc["manifests"]); m != nil {
				doc["manifests"] = append(m, m[0])
			}
			return b, doc
		}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readArchive(t, content)
			if !fault.Is(err, fault.Invalid) || strings.ContainsAny(err.Error(), "\n") {
				t.Errorf("got %v (%v)", err, fault.CodeOf(err))
			}
		})
	}
	t.Run("another content than the image says", func(t *testing.T) {
		content := repack(t, good, func(_ string, b []byte, doc map[string]any) ([]byte, map[string]any) {
			if doc == nil && bytes.Equal(b, parts[1]) {
				return tarOf(t, file("workspace/a", "other")), nil
			}
			return b, doc
		})
		got, err := readArchive(t, content)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := contentOf(t, got.Layers[1]); !fault.Is(err, fault.Invalid) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("too large", func(t *testing.T) {
		dir := t.TempDir()
		_, err := new(Catalog).ReadArchive(t.Context(), bytes.NewReader(good), dir, 4000)
		if !fault.Is(err, fault.Exhausted) {
			t.Errorf("got %v", err)
		}
	})
}

// FuzzReadArchive looks for an archive that crashes the reader or writes
// outside of its folder.
func FuzzReadArchive(f *testing.F) {
	a, _ := sampleArchive(f)
	good := writeArchive(f, a)
	f.Add(good)
	f.Add(good[:700])
	f.Add(tarOf(f, file("../outside", "x"), file(layoutFile, layoutText), file(indexFile, "{}")))
	f.Fuzz(func(t *testing.T, content []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "a", "scratch")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := new(Catalog).ReadArchive(t.Context(), bytes.NewReader(content), dir, 1<<20)
		if err == nil {
			for _, l := range got.Layers {
				_, _ = contentOf(t, l)
			}
		}
		for at, want := range map[string]int{parent: 1, filepath.Dir(dir): 1} {
			if names, err := os.ReadDir(at); err != nil || len(names) != want {
				t.Fatalf("%s holds %v, %v", at, names, err)
			}
		}
	})
}
