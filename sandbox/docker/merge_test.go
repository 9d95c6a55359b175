package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// layerDir makes a directory. Names that end with / are directories; "->" makes a
// symbolic link, "=" a hard link, "!" a whiteout; the rest are files.
func layerDir(t *testing.T, entries ...string) string {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if errors.Is(err, unix.EPERM) {
			t.Skipf("whiteouts take root: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range entries {
		name, rest, _ := strings.Cut(e, " ")
		path := filepath.Join(dir, name)
		must(os.MkdirAll(filepath.Dir(path), 0o755))
		switch {
		case strings.HasSuffix(name, "/"):
			must(os.MkdirAll(path, 0o755))
			if rest == "opaque" {
				must(unix.Lsetxattr(path, "trusted.overlay.opaque", []byte("y"), 0))
			}
		case rest == "!":
			must(unix.Mknod(path, unix.S_IFCHR, 0))
		case strings.HasPrefix(rest, "->"):
			must(os.Symlink(strings.TrimPrefix(rest, "->"), path))
		case strings.HasPrefix(rest, "="):
			must(os.Link(filepath.Join(dir, strings.TrimPrefix(rest, "=")), path))
		default:
			must(os.WriteFile(path, []byte(rest), 0o644))
		}
	}
	return dir
}

// merged lists the entries of a merge.
func merged(t *testing.T, layers ...string) string {
	t.Helper()
	var b bytes.Buffer
	if err := writeTar(t.Context(), &b, layers); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(lines, "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		line := h.Name
		switch h.Typeflag {
		case tar.TypeReg:
			line += " " + string(content)
		case tar.TypeSymlink:
			line += " ->" + h.Linkname
		case tar.TypeLink:
			line += " =" + h.Linkname
		}
		lines = append(lines, line)
	}
}

func TestMerge(t *testing.T) {
	for _, tt := range []struct {
		name   string
		layers [][]string // the topmost first
		want   string
	}{
		{"nothing", [][]string{{}}, "./"},
		{"higher wins", [][]string{{"a high"}, {"a low", "b low"}}, "./\na high\nb low"},
		{"directories merge", [][]string{{"d/a high"}, {"d/a low", "d/b low"}}, "./\nd/\nd/a high\nd/b low"},
		{"three deep", [][]string{{"d/e/a 1"}, {"d/e/b 2", "d/e/a 2"}, {"d/e/c 3", "d/e/b 3"}}, "./\nd/\nd/e/\nd/e/a 1\nd/e/b 2\nd/e/c 3"},
		{"whiteout", [][]string{{"a !", "d !"}, {"a low", "d/x low", "b low"}}, "./\nb low"},
		{"whiteout of nothing", [][]string{{"a !"}, {"b low"}}, "./\nb low"},
		{"made again above a whiteout", [][]string{{"a high"}, {"a !"}, {"a low"}}, "./\na high"},
		{"directory above a whiteout", [][]string{{"d/a high"}, {"d !"}, {"d/b low"}}, "./\nd/\nd/a high"},
		{"opaque", [][]string{{"d/ opaque", "d/a high"}, {"d/b low"}}, "./\nd/\nd/a high"},
		{"opaque in the middle", [][]string{{"d/a 1"}, {"d/ opaque", "d/b 2"}, {"d/c 3"}}, "./\nd/\nd/a 1\nd/b 2"},
		{"file over directory", [][]string{{"d high"}, {"d/x low"}}, "./\nd high"},
		{"directory over file", [][]string{{"d/x high"}, {"d low"}}, "./\nd/\nd/x high"},
		{"directory over file over directory", [][]string{{"d/x 1"}, {"d 2"}, {"d/y 3"}}, "./\nd/\nd/x 1"},
		{"link over directory", [][]string{{"d ->elsewhere"}, {"d/x low"}}, "./\nd ->elsewhere"},
		{"hard links", [][]string{{"a x", "b =a", "c/d =a"}}, "./\na x\nb =a\nc/\nc/d =a"},
		{"hard link whose first name is hidden", [][]string{{"a high"}, {"a low", "b =a", "c =a"}}, "./\na high\nb low\nc =b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var layers []string
			for _, entries := range tt.layers {
				layers = append(layers, layerDir(t, entries...))
			}
			if got := merged(t, layers...); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestMergeAttributes(t *testing.T) {
	dir := layerDir(t, "f content", "long/"+strings.Repeat("x", 200)+" y")
	path := filepath.Join(dir, "f")
	stamp := time.Unix(1234567890, 123456789)
	if err := errors.Join(os.Chown(path, 3_000_000, 4_000_000), os.Chmod(path, 0o751|os.ModeSetuid), os.Chtimes(path, stamp, stamp)); err != nil {
		t.Skipf("this takes root: %v", err)
	}
	if err := unix.Lsetxattr(path, "user.test", []byte("a\x00=b"), 0); err != nil {
		t.Skipf("this file system has no extended attributes: %v", err)
	}
	if err := unix.Lsetxattr(path, "trusted.overlay.origin", []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var b bytes.Buffer
	if err := writeTar(t.Context(), &b, []string{dir}); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := writeTar(t.Context(), &again, []string{dir}); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("the same layer gives other bytes the second time (%v)", err)
	}
	names := ""
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names += fmt.Sprintf("%.8s ", h.Name)
		if h.Name != "f" {
			continue
		}
		if h.Uid != 3_000_000 || h.Gid != 4_000_000 || h.Mode != 0o4751 || !h.ModTime.Equal(stamp) {
			t.Errorf("%+v", h)
		}
		if v := h.PAXRecords["SCHILY.xattr.user.test"]; v != "a\x00=b" {
			t.Errorf("the attribute is %q", v)
		}
		if v, ok := h.PAXRecords["SCHILY.xattr.trusted.overlay.origin"]; ok {
			t.Errorf("overlayfs's own attribute is kept: %q", v)
		}
	}
	if names != "./ f long/ long/xxx " {
		t.Errorf("the entries are %q", names)
	}
}

func TestMergeRefuses(t *testing.T) {
	redirected := layerDir(t, "d/a x")
	if err := unix.Lsetxattr(filepath.Join(redirected, "d"), "trusted.overlay.redirect", []byte("e"), 0); err != nil {
		t.Skipf("this takes root: %v", err)
	}
	for name, dir := range map[string]string{"redirect": redirected, "reserved name": layerDir(t, "d/.wh.a x")} {
		if err := writeTar(t.Context(), io.Discard, []string{dir}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := writeTar(ctx, io.Discard, []string{redirected}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestHasProjectQuota(t *testing.T) {
	info := filepath.Join(t.TempDir(), "mountinfo")
	lines := "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,prjquota\n" +
		"30 22 8:2 / /var rw,relatime shared:2 - xfs /dev/sdb1 rw,attr2,noquota\n" +
		"31 30 8:3 / /var/lib/docker rw,relatime shared:3 - xfs /dev/sdc1 rw,attr2,inode64,pquota\n" +
		"32 22 8:4 / /var/lib/dockerx rw - xfs /dev/sdd1 rw\n" + "garbage\n"
	if err := os.WriteFile(info, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{"/var/lib/docker": true, "/var/lib/docker/x": true, "/var/lib": false, "/var/lib/dockerx": false, "/srv": true} {
		if got := hasProjectQuota(info, dir); got != want {
			t.Errorf("%s: %v", dir, got)
		}
	}
	if hasProjectQuota(info+".missing", "/") {
		t.Error("a missing table has quotas")
	}
}
