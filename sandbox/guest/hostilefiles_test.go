package guest_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// useFiles tries everything a host does with the files of a guest, and returns
// the errors and the paths that came.
func useFiles(t testing.TB, c *guest.Conn) (results map[string]error, paths []string) {
	ctx := testContext(t)
	results = map[string]error{}
	for verb, do := range verbs {
		results[verb] = do(ctx, c, "x")
	}
	info, err := c.Stat(ctx, "x", guest.StatOptions{})
	if results["stat"] = err; err == nil {
		paths = append(paths, info.Path)
	}
	made, err := c.Mkdir(ctx, "x", guest.MkdirOptions{})
	results["mkdir"] = err
	paths = append(paths, made...)
	made, err = c.PutFile(ctx, "x", guest.WriteOptions{}, strings.NewReader("x"))
	results["put"] = err
	paths = append(paths, made...)
	_, results["list"] = c.ListFiles(ctx, "x", guest.ListOptions{Limit: 100}, func(f guest.FileInfo) error {
		if filepath.IsAbs(f.Path) || !filepath.IsLocal(f.Path) || len(f.Path) > 4095 {
			t.Errorf("listed %q", f.Path)
		}
		return nil
	})
	if ctx.Err() != nil {
		t.Error("the host waited for a guest that had answered")
	}
	return results, paths
}

// What no guest of ours says of files ends the connection.
func TestHostileFiles(t *testing.T) {
	dir := message(`{"result":{"path":"/d","type":"dir","mode":493}}`)
	entries := func(json string) []byte {
		return frames(dir, frame(wire.KindEntries, json), frame(wire.KindResult, `{"result":{}}`))
	}
	entry := func(path string) []byte { return entries(`[{"path":` + path + `,"type":"file"}]`) }
	for name, answer := range map[string][]byte{
		"absolute":          entry(`"/etc/passwd"`),
		"parent":            entry(`"../x"`),
		"parent within":     entry(`"a/../../x"`),
		"dot":               entry(`"./x"`),
		"empty":             entry(`""`),
		"empty part":        entry(`"a//b"`),
		"zero byte":         entry(`"a\u0000b"`),
		"long name":         entry(`"` + strings.Repeat("x", 256) + `"`),
		"long path":         entry(`"` + strings.Repeat("x/", 2100) + `x"`),
		"coded parent":      entry(`["Li4veA=="]`),
		"not base64":        entry(`["§"]`),
		"two parts":         entry(`["eA==","eA=="]`),
		"a number":          entry(`5`),
		"type":              entries(`[{"path":"x","type":"evil"}]`),
		"no type":           entries(`[{"path":"x"}]`),
		"negative size":     entries(`[{"path":"x","type":"file","size":-1}]`),
		"mode":              entries(`[{"path":"x","type":"file","mode":65535}]`),
		"target of a file":  entries(`[{"path":"x","type":"file","target":"y"}]`),
		"long target":       entries(`[{"path":"x","type":"link","target":"` + strings.Repeat("y", 5000) + `"}]`),
		"too many":          entries(`[` + strings.Repeat(`{"path":"x","type":"file"},`, 300) + `{"path":"x","type":"file"}]`),
		"over the limit":    frames(entries(`[{"path":"x","type":"file"},{"path":"y","type":"file"},{"path":"z","type":"file"}]`)),
		"no list":           entries(`{}`),
		"deep":              entries(strings.Repeat(`[`, 100_000)),
		"long frame":        frames(dir, []byte{byte(wire.KindEntries), 0xff, 0xff, 0xff, 0xff}),
		"other frame":       frames(dir, frame(wire.KindStdout, "x")),
		"data":              frames(dir, frame(wire.KindData, "x")),
		"no end":            dir,
		"relative dir":      message(`{"result":{"path":"d","type":"dir"}}`),
		"negative skipped":  frames(dir, frame(wire.KindResult, `{"result":{"skipped":-1}}`)),
		"end without error": frames(dir, frame(wire.KindResult, `[]`)),
	} {
		t.Run(name, func(t *testing.T) {
			c := hostile(t, answer)
			_, err := c.ListFiles(testContext(t), "x", guest.ListOptions{Limit: 2}, func(guest.FileInfo) error { return nil })
			if !errors.Is(err, guest.ErrLost) || !strings.Contains(err.Error(), "broke the protocol") {
				t.Errorf("%v", err)
			}
		})
	}
	for name, answer := range map[string]string{
		"relative":   `{"dir":"d"}`,
		"unclean":    `{"dir":"/a/../b","created":1}`,
		"more":       `{"dir":"/a","created":2}`,
		"negative":   `{"dir":"/a","created":-1}`,
		"very many":  `{"dir":"/a","created":1000000000}`,
		"none":       `{}`,
		"zero bytes": `{"dir":"/a\u0000","created":1}`,
	} {
		c := hostile(t, message(`{"result":`+answer+`}`))
		if made, err := c.Mkdir(testContext(t), "x", guest.MkdirOptions{}); !errors.Is(err, guest.ErrLost) {
			t.Errorf("made %s: %q %v", name, made, err)
		}
	}
	for name, end := range map[string]string{
		"negative": `{"result":{"files":-1}}`, "beside an error": `{"error":{"code":"INVALID","message":"x"},"result":{"bytes":-1}}`,
		"no number": `{"error":{"code":"INVALID","message":"x"},"result":{"bytes":"x"}}`,
	} {
		c := hostile(t, frames(message(`{}`), frame(wire.KindResult, end)))
		if _, err := c.Upload(testContext(t), "x", guest.UploadOptions{Format: guest.Tar}, strings.NewReader("x")); !errors.Is(err, guest.ErrLost) {
			t.Errorf("unpacked %s: %v", name, err)
		}
		c = hostile(t, frames(message(`{}`), frame(wire.KindData, "x"), frame(wire.KindResult, end)))
		if _, err := c.Download(testContext(t), "x", guest.Tar, "", io.Discard); !errors.Is(err, guest.ErrLost) {
			t.Errorf("packed %s: %v", name, err)
		}
	}
	c := hostile(t, frames(message(`{"result":{"size":5,"mode":420}}`), frame(wire.KindData, "more than was asked for"), frame(wire.KindResult, `{}`)))
	f, err := c.OpenFile(testContext(t), "x", guest.ReadOptions{Length: 4})
	must(t, err)
	if b, err := io.ReadAll(f); !errors.Is(err, guest.ErrLost) || len(b) > 4 {
		t.Errorf("%q %v", b, err)
	}
}

// A guest that sends whatever it likes as a tree reaches nothing on the host but
// the directory it is copied into.
func TestHostileCopyOut(t *testing.T) {
	archive := func(t *testing.T, build func(dir string)) []byte {
		dir := t.TempDir()
		build(dir)
		var b strings.Builder
		_, err := tree.Pack(t.Context(), dir, tree.Tar, &b)
		must(t, err)
		return []byte(b.String())
	}
	above := t.TempDir()
	link := archive(t, func(dir string) { must(t, os.Symlink("..", dir+"/l")) })
	file := archive(t, func(dir string) { must(t, os.Mkdir(dir+"/l", 0o755)); must(t, os.WriteFile(dir+"/l/evil", nil, 0o600)) })
	both := append(link[:512:512], file...)
	for _, sent := range [][]byte{both, []byte("no archive at all"), link[:100], nil} {
		answer := frames(message(`{}`), frame(wire.KindData, string(sent)), frame(wire.KindResult, `{"result":{"files":1}}`))
		to := filepath.Join(above, "to")
		must(t, os.RemoveAll(to))
		must(t, os.Mkdir(to, 0o755))
		root, err := tree.OpenDir(to)
		must(t, err)
		done, err := hostile(t, answer).CopyOut(testContext(t), "x", "", root, tree.Limits{})
		root.Close()
		if len(sent) > 0 && !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v %v", done, err)
		}
		if entries, err := os.ReadDir(above); err != nil || len(entries) != 1 {
			t.Errorf("outside: %v %v", entries, err)
		}
	}
}

// FuzzHostFiles lets a guest answer anything to what is asked of files.
func FuzzHostFiles(f *testing.F) {
	for _, seed := range [][]byte{
		message(`{"result":{"path":"/x","type":"link","mode":511,"target":["/w=="],"modified":-5}}`),
		message(`{"result":{"dir":"/a/b","created":2}}`),
		message(`{"result":{"found":true}}`),
		frames(message(`{"result":{"path":"/d","type":"dir"}}`), frame(wire.KindEntries, `[{"path":"a/b","type":"file","size":7}]`), frame(wire.KindResult, `{"result":{"more":true,"skipped":3}}`)),
		frames(message(`{}`), frame(wire.KindData, "archive"), frame(wire.KindResult, `{"error":{"code":"INVALID","message":"x"},"result":{"files":3,"first":"\u001b[2J"}}`)),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		results, paths := useFiles(t, hostile(t, answer))
		for what, err := range results {
			if err == nil {
				continue
			}
			if _, ok := errors.AsType[*fault.Error](err); !ok {
				t.Errorf("%s: %v is not a fault", what, err)
			}
			if text := err.Error(); strings.ContainsAny(text, "\x1b\n\r\x00") || len(text) > 2*wire.MaxText {
				t.Errorf("%s: %q", what, text)
			}
		}
		for _, path := range paths {
			if !filepath.IsAbs(path) || strings.Contains(path, "\x00") || len(path) > 4095 {
				t.Errorf("the path %q", path)
			}
		}
	})
}
