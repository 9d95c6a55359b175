package drivertest

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	guesttree "github.com/sandgate/sandgate/sandbox/guest/tree"
)

func fileOperationTests() []test {
	return []test{
		{name: "Files/Operations", run: testFileOperations},
		{name: "Files/Archives", run: testArchives},
		{name: "Files/Users", walls: true, run: testFilesOfUsers},
		{name: "Files/Many", run: testManyFiles},
		{name: "Files/Deep", walls: true, run: testDeepFiles},
		{name: "Files/PathTricks", walls: true, run: testPathTricks},
		{name: "Files/Swapped", walls: true, run: testSwapped},
		{name: "Files/Full", walls: true, run: testFullDisk},
	}
}

// oddNames are names that any filesystem takes; that one is not UTF-8 is for
// drivers to tell apart from one that is.
var oddNames = []string{"plain", "späce and ünicode", "new\nline", "-rf", "\x1b[2J", "not\xffutf8\xfe", `back\slash"quote`, strings.Repeat("l", 255)}

func testFileOperations(t *testing.T, e *env) {
	b := e.boot(t)
	c := ctx(t)
	for i, name := range oddNames {
		mode := 0o600 + uint32(i)
		made, err := b.conn.PutFile(c, "one/two/"+name, guest.WriteOptions{Parents: true, Mode: mode}, strings.NewReader(name))
		if err != nil || len(made) != map[bool]int{true: 2}[i == 0] {
			t.Fatalf("put %q: made %q, %v", name, made, err)
		}
		info, err := b.conn.Stat(c, "one/two/"+name, guest.StatOptions{})
		if err != nil || info.Mode != mode || info.Size != int64(len(name)) || info.Type != guest.TypeFile {
			t.Errorf("stat %q: %+v %v", name, info, err)
		}
		if _, err := b.conn.PutFile(c, "one/two/"+name, guest.WriteOptions{Append: true}, strings.NewReader("+")); err != nil {
			t.Errorf("append to %q: %v", name, err)
		}
		if _, err := b.conn.PutFile(c, "one/two/"+name, guest.WriteOptions{}, strings.NewReader(name)); err != nil {
			t.Errorf("replace %q: %v", name, err)
		}
		if err := b.conn.Rename(c, "one/two/"+name, "one/"+name, ""); err != nil {
			t.Errorf("rename %q: %v", name, err)
		}
	}
	b.sh(t, "cd one && ln -s two link && ln -s none dangling && ln plain hard")
	var found []string
	l, err := b.conn.ListFiles(c, "one", guest.ListOptions{Recursive: true}, func(f guest.FileInfo) error {
		found = append(found, fmt.Sprintf("%s %s %o %s", f.Path, f.Type, f.Mode, f.Target))
		return nil
	})
	want := []string{"two dir 755 ", "link link 777 two", "dangling link 777 none", "hard file 600 "}
	for i, name := range oddNames {
		want = append(want, fmt.Sprintf("%s file %o ", name, 0o600+i))
	}
	slices.Sort(found)
	slices.Sort(want)
	if err != nil || !slices.Equal(found, want) || l.Skipped != 0 {
		t.Errorf("listed %q, want %q; %+v %v", found, want, l, err)
	}
	f, err := b.conn.OpenFile(c, "one/plain", guest.ReadOptions{Offset: 1, Length: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if part, err := io.ReadAll(f); string(part) != "lai" || err != nil {
		t.Errorf("a part is %q, %v", part, err)
	}
	if err := b.conn.Chmod(c, "one/plain", 0o640, ""); err != nil || b.sh(t, "stat -c %a one/plain") != "640" {
		t.Errorf("chmod: %v", err)
	}
	_, err = b.conn.RemoveDir(c, "one", guest.RemoveDirOptions{})
	wantCode(t, err, fault.State)
	_, err = b.conn.RemoveFile(c, "one", "")
	wantCode(t, err, fault.Invalid)
	if found, err := b.conn.RemoveFile(c, "one/link", ""); !found || err != nil || b.sh(t, "ls -d one/two") != "one/two" {
		t.Errorf("remove a link: %v %v", found, err)
	}
	for _, want := range []bool{true, false} {
		if found, err := b.conn.RemoveDir(c, "one", guest.RemoveDirOptions{Recursive: true}); found != want || err != nil {
			t.Errorf("remove: %v %v", found, err)
		}
	}
	if got := b.sh(t, "ls -A"); got != "" {
		t.Errorf("left: %q", got)
	}
}

// testArchives takes a tree through each form of archive, and looks at what
// comes out with the sandbox's own programs.
func testArchives(t *testing.T, e *env) {
	b := e.boot(t)
	c := ctx(t)
	b.sh(t, `mkdir -p from/deep/er from/empty && cd from && echo text >f && chmod 751 f && touch -d @1000000000 f && ln f deep/hard &&
		ln -s ../f deep/link && ln -s / root && ln -s none dangling && head -c 300000 /dev/zero >deep/er/zero && chmod 550 empty`)
	const look = `find . ! -type l -exec stat -c '%n %f %s' {} + | sort; find . -type l | sort | xargs -n 1 readlink; stat -c %Y f; [ $(stat -c %h f) = 2 ] && echo hard`
	want := b.sh(t, "cd from && "+look)
	for _, f := range []guest.Format{guest.Tar, guest.TarGz, guest.Zip} {
		var archive bytes.Buffer
		packed, err := b.conn.Download(c, "from", f, "", &archive)
		if err != nil || packed.Files != 3 || packed.Dirs != 3 || packed.Links != 3 || packed.Skipped != 0 {
			t.Fatalf("%s: %+v %v", f, packed, err)
		}
		if f != guest.Tar && archive.Len() > 100_000 {
			t.Errorf("%s has %d bytes", f, archive.Len())
		}
		done, err := b.conn.Upload(c, "to", guest.UploadOptions{}, &archive)
		if err != nil || done != packed {
			t.Errorf("%s: %+v, of %+v: %v", f, done, packed, err)
		}
		expected := want
		if f == guest.Zip { // which knows no hard links
			expected = strings.TrimSuffix(want, "\nhard")
		}
		if got := b.try(t, "cd to && "+look); strings.TrimSpace(got.stdout) != expected {
			t.Errorf("%s: %q, want %q", f, got.stdout+got.stderr, expected)
		}
		b.sh(t, "rm -rf to")
	}
	// What leads out is refused by name; what came before it stays.
	b.sh(t, "mkdir evil && cd evil && ln -s /tmp a && echo x >z")
	var link, file bytes.Buffer
	if _, err := b.conn.Download(c, "evil", guest.Tar, "", &link); err != nil {
		t.Fatal(err)
	}
	b.sh(t, "rm evil/* && mkdir evil/a && echo x >evil/a/escaped")
	if _, err := b.conn.Download(c, "evil", guest.Tar, "", &file); err != nil {
		t.Fatal(err)
	}
	link.Truncate(link.Len() - 1024) // the end of the first archive
	done, err := b.conn.Upload(c, "to", guest.UploadOptions{}, io.MultiReader(&link, &file))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `leads through a link out`) || done.Links != 1 || done.Files != 1 {
		t.Errorf("%+v %v", done, err)
	}
	b.refuses(t, "ls /tmp/escaped")
}

func testFilesOfUsers(t *testing.T, e *env) {
	b := e.boot(t)
	c := ctx(t)
	b.sh(t, "mkdir -m 700 /closed && echo secret >/closed/f")
	_, err := b.conn.OpenFile(c, "/closed/f", guest.ReadOptions{User: "user"})
	wantCode(t, err, fault.Denied)
	_, err = b.conn.PutFile(c, "/etc/passwd", guest.WriteOptions{User: "user"}, strings.NewReader("x"))
	wantCode(t, err, fault.Denied)
	_, err = b.conn.RemoveDir(c, "/closed", guest.RemoveDirOptions{User: "user", Recursive: true})
	wantCode(t, err, fault.Denied)
	wantCode(t, b.conn.Chmod(c, "/closed", 0o777, "user"), fault.Denied)
	if _, err := b.conn.PutFile(c, "mine/f", guest.WriteOptions{User: "user", Parents: true}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if got := b.sh(t, "stat -c %u:%g mine mine/f; cat /closed/f"); got != "1000:1000\n1000:1000\nsecret" {
		t.Errorf("%q", got)
	}
	if _, err := b.conn.PutFile(c, "mine/f", guest.WriteOptions{}, strings.NewReader("by root")); err != nil {
		t.Fatal(err)
	}
	if got := b.sh(t, "stat -c %u:%g:%a mine/f"); got != "1000:1000:644" {
		t.Errorf("a file that root replaced is %s", got)
	}
}

// testManyFiles copies a tree of this host's into a sandbox and out again.
func testManyFiles(t *testing.T, e *env) {
	b := e.boot(t)
	c := ctx(t)
	from, to := t.TempDir(), t.TempDir()
	const count = 2000
	writeMany(t, from, count)
	in, err := b.conn.CopyIn(c, from, "tree", guest.UploadOptions{})
	if err != nil || in.Files != count {
		t.Fatalf("%+v %v", in, err)
	}
	if got := b.sh(t, "find tree -type f | wc -l; cat tree/7/1007"); got != fmt.Sprint(count, "\ncontent of 1007") {
		t.Errorf("%q", got)
	}
	seen := 0
	if l, err := b.conn.ListFiles(c, "tree", guest.ListOptions{Recursive: true, Limit: 1500}, func(guest.FileInfo) error { seen++; return nil }); err != nil || seen != 1500 || !l.More {
		t.Errorf("listed %d, %+v %v", seen, l, err)
	}
	root, err := guesttree.OpenDir(to)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if out, err := b.conn.CopyOut(c, "tree", "", root, guesttree.Limits{}); err != nil || out != in {
		t.Errorf("%+v of %+v: %v", out, in, err)
	}
	if contents(t, from) != contents(t, to) {
		t.Error("what came back is not what went in")
	}
}
