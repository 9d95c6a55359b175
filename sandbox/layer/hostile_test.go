package layer

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// typed is an entry of any kind.
func typed(name string, kind byte) item { return item{tar.Header{Name: name, Typeflag: kind}, ""} }

func xattr(name, value string) item {
	i := reg("f", "x")
	i.PAXRecords = map[string]string{paxXattr + name: value}
	return i
}

func TestHostileArchives(t *testing.T) {
	needRoot(t)
	owner := func(uid int) item { i := reg("f", ""); i.Uid = uid; return i }
	deep := strings.Repeat("d/", maxDepth+1) + "f"
	for _, tt := range []struct {
		name  string
		items []item
		code  fault.Code
		names string // in the message
	}{
		{"absolute", []item{reg("/etc/x", "x")}, fault.Invalid, "/etc/x"},
		{"climbing", []item{reg("a/../../x", "x")}, fault.Invalid, ".."},
		{"climbing alone", []item{folder("..")}, fault.Invalid, ".."},
		{"climbing mark", []item{reg(".wh...", "")}, fault.Invalid, ".wh..."},
		{"mark of the directory itself", []item{reg("d/.wh..", "")}, fault.Invalid, ".wh.."},
		{"mark of nothing", []item{reg(".wh.", "")}, fault.Invalid, ".wh."},
		{"unknown mark", []item{reg(".wh..wh.plnk", "")}, fault.Invalid, "plnk"},
		{"file in a mark", []item{reg(".wh.d/f", "")}, fault.Invalid, ".wh.d/f"},
		{"mark that is a link", []item{soft(".wh.f", "/etc")}, fault.Invalid, ".wh.f"},
		{"mark that is a directory", []item{folder(".wh.f")}, fault.Invalid, ".wh.f"},
		{"opaque file", []item{reg("f", ""), reg("f/.wh..wh..opq", "")}, fault.Invalid, "f"},
		{"through a link", []item{soft("l", "/tmp"), reg("l/x", "x")}, fault.Invalid, "l/x"},
		{"through a link within", []item{folder("d"), soft("l", "d"), reg("l/x", "x")}, fault.Invalid, "l/x"},
		{"through a file", []item{reg("f", "x"), reg("f/x", "x")}, fault.Invalid, "f/x"},
		{"link instead of a directory", []item{folder("d"), soft("d", "/tmp"), reg("d/x", "x")}, fault.Invalid, "d"},
		{"mark through a link", []item{soft("l", "/tmp"), reg("l/.wh.x", "")}, fault.Invalid, "l"},
		{"hard link outside", []item{hard("h", "../../etc/passwd")}, fault.Invalid, "etc/passwd"},
		{"hard link absolute", []item{hard("h", "/etc/passwd")}, fault.Invalid, "/etc/passwd"},
		{"hard link to nothing", []item{hard("h", "later"), reg("later", "x")}, fault.Invalid, "later"},
		{"hard link to a directory", []item{folder("d"), hard("h", "d")}, fault.Invalid, "d"},
		{"hard link to a deletion", []item{reg(".wh.g", ""), hard("h", "g")}, fault.Invalid, "g"},
		{"hard link through a link", []item{soft("l", "/etc"), hard("h", "l/passwd")}, fault.Invalid, "l/passwd"},
		{"character device", []item{typed("dev", tar.TypeChar)}, fault.Invalid, "dev"},
		{"block device", []item{typed("disk", tar.TypeBlock)}, fault.Invalid, "disk"},
		{"unknown kind", []item{typed("odd", 'Z')}, fault.Invalid, "odd"},
		{"twice", []item{reg("f", "1"), reg("f", "2")}, fault.Invalid, "f"},
		{"twice in other words", []item{reg("d/f", "1"), reg("./d/./f", "2")}, fault.Invalid, "f"},
		{"directory twice", []item{folder("d"), folder("d/")}, fault.Invalid, "d"},
		{"file for a directory", []item{reg("d/f", ""), reg("d", "")}, fault.Invalid, "d"},
		{"deleted twice", []item{reg(".wh.f", ""), reg(".wh.f", "")}, fault.Invalid, "f"},
		{"replaced twice", []item{reg(".wh.f", ""), reg("f", ""), reg("f", "")}, fault.Invalid, "f"},
		{"root a file", []item{reg(".", "x")}, fault.Invalid, "."},
		{"no name", []item{reg("", "x")}, fault.Invalid, ""},
		{"long part", []item{reg(strings.Repeat("n", 256), "x")}, fault.Invalid, "256 bytes"},
		{"long name", []item{reg(strings.Repeat("nn/", 1366)+"f", "x")}, fault.Invalid, "4099 bytes"},
		{"name of a megabyte", []item{reg(strings.Repeat("n", 1<<20-100), "x")}, fault.Invalid, "bytes"},
		{"deep", []item{reg(deep, "x")}, fault.Invalid, "deep"},
		{"link without a target", []item{soft("l", "")}, fault.Invalid, "l"},
		{"link with a long target", []item{soft("l", strings.Repeat("t", 4097))}, fault.Invalid, "4097"},
		{"negative owner", []item{owner(-1)}, fault.Invalid, "-1"},
		{"owner nobody can be", []item{owner(1<<32 - 1)}, fault.Invalid, "4294967295"},
		{"trusted attribute", []item{xattr(trustedOpaque, "y")}, fault.Invalid, "trusted"},
		{"trusted redirect", []item{xattr("trusted.overlay.redirect", "/etc")}, fault.Invalid, "redirect"},
		{"attribute that steers", []item{xattr(userOpaque, "y")}, fault.Invalid, "user.overlay"},
		{"damaged capability", []item{xattr("security.capability", "nonsense")}, fault.Invalid, "capability"},
		{"attribute too large", []item{xattr("user.big", strings.Repeat("v", 65537))}, fault.Invalid, "attribute"},
		{"too much", []item{reg("a", strings.Repeat("x", 600)), reg("b", strings.Repeat("x", 600))}, fault.Exhausted, "1000 bytes"},
		{"too many", slices.Repeat([]item{folder("d")}, 51), fault.Exhausted, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "too many" {
				for i := range tt.items {
					tt.items[i].Name = fmt.Sprint("d", i)
				}
			}
			parent := t.TempDir()
			dir := filepath.Join(parent, "dir")
			err := ReadOverlay(t.Context(), bytes.NewReader(archive(t, tt.items...)), dir, Limits{Bytes: 1000, Entries: 50})
			if fault.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.names) || strings.Contains(err.Error(), parent) {
				t.Errorf("%s: %v", fault.CodeOf(err), err)
			}
			if len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("no line for a person: %q", err)
			}
			if left, _ := os.ReadDir(parent); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
			if tt.code == fault.Exhausted || strings.Contains(tt.name, "damaged") {
				return // a bound of the call, or of the host's kernel
			}
			if _, err := Entries(t.Context(), bytes.NewReader(archive(t, tt.items...))); !fault.Is(err, fault.Invalid) {
				t.Errorf("Entries: %v", err)
			}
			if err := ToUpper(t.Context(), bytes.NewReader(archive(t, tt.items...)), &bytes.Buffer{}, Limits{}); !fault.Is(err, fault.Invalid) {
				t.Errorf("ToUpper: %v", err)
			}
		})
	}
}

// TestBrokenArchives holds that no part of an archive passes for all of it.
func TestBrokenArchives(t *testing.T) {
	needRoot(t)
	whole := archive(t, folder("d"), reg("d/f", strings.Repeat("x", 700)), reg("g", "y"))
	dir := filepath.Join(t.TempDir(), "dir")
	for n := 0; n < len(whole)-512; n += 256 {
		for name, err := range map[string]error{
			"read":    ReadOverlay(t.Context(), bytes.NewReader(whole[:n]), dir, Limits{}),
			"stream":  ReadOverlay(t.Context(), bytes.NewBuffer(whole[:n]), dir, Limits{}),
			"convert": ToUpper(t.Context(), bytes.NewReader(whole[:n]), &bytes.Buffer{}, Limits{}),
		} {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: the first %d of %d bytes: %v", name, n, len(whole), err)
			}
		}
	}
	long := append(slices.Clone(whole), make([]byte, 2<<20)...)
	if err := ReadOverlay(t.Context(), bytes.NewReader(long), dir, Limits{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("an archive with a long tail: %v", err)
	}
	if err := ReadOverlay(t.Context(), strings.NewReader("no archive at all"), dir, Limits{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("no archive: %v", err)
	}
	must(t, ReadOverlay(t.Context(), bytes.NewReader(whole), dir, Limits{}))
	if err := ReadOverlay(t.Context(), bytes.NewReader(whole), dir, Limits{}); !fault.Is(err, fault.Exists) {
		t.Errorf("over another: %v", err)
	}
	if _, err := os.Stat(dir + "/d/f"); err != nil {
		t.Error("the other is gone")
	}
}

// TestNameOfMegabytes has a name that no writer of archives would write: an
// entry that is turned into the name of the next one.
func TestNameOfMegabytes(t *testing.T) {
	b := archive(t, reg("f", strings.Repeat("n", 2<<20)), reg("f", "x"))
	b[156] = 'L'
	copy(b[148:], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	if _, err := Entries(t.Context(), bytes.NewReader(b)); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

// TestReplaced holds what a deletion means of a path that the layer has too.
func TestReplaced(t *testing.T) {
	needRoot(t)
	for _, items := range [][]item{
		{reg(".wh.f", ""), reg("f", "new"), reg(".wh.d", ""), folder("d"), reg("d/x", ""), reg(".wh.i", ""), reg("i/x", "")},
		{reg("f", "new"), reg(".wh.f", ""), folder("d"), reg("d/x", ""), reg(".wh.d", ""), reg("i/x", ""), reg(".wh.i", "")},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		items = append(items, reg("d/.wh.idle", ""), reg("d/sub/.wh.idle", ""))
		must(t, ReadOverlay(t.Context(), bytes.NewReader(archive(t, items...)), dir, Limits{}))
		for _, idle := range []string{"d/idle", "d/sub/idle"} {
			if _, err := os.Lstat(filepath.Join(dir, idle)); err == nil {
				t.Errorf("%s marks what nobody could see", idle)
			}
		}
		if b, err := os.ReadFile(dir + "/f"); string(b) != "new" {
			t.Errorf("the file: %q, %v", b, err)
		}
		for _, d := range []string{"d", "i"} {
			var v [8]byte
			if n, err := unix.Getxattr(filepath.Join(dir, d), trustedOpaque, v[:]); err != nil || string(v[:n]) != "y" {
				t.Errorf("%s is not opaque: %v", d, err)
			}
		}
	}
}

func TestForeignArchives(t *testing.T) {
	needRoot(t)
	selinux := xattr("security.selinux", "system_u:object_r:etc_t:s0")
	dir := filepath.Join(t.TempDir(), "dir")
	must(t, ReadOverlay(t.Context(), bytes.NewReader(archive(t, reg("./deep/down/f", "x"), selinux)), dir, Limits{}))
	got := facts(t, dir)
	if len(got) != 5 || !strings.Contains(got[1], `"deep" 40755 0:0 0.000000000`) {
		t.Errorf("%q", got)
	}
	if n, err := unix.Getxattr(dir+"/f", "security.selinux", nil); err == nil && n > 0 {
		t.Error("a label of another host is kept")
	}
}
