package sftpserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/sftp"
)

func homes(user string) (string, bool) {
	switch user {
	case "":
		return "/home/me", true
	case "root":
		return "/root", true
	}
	return "", false
}

// serve serves the directory of the test.
func serve(t *testing.T) (c *sftp.Client, dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := Serve(in, out, homes)
		out.Close()
		served <- err
	}()
	c, err = sftp.NewClientPipe(fromServer, toServer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		toServer.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return c, dir
}

func TestServe(t *testing.T) {
	c, dir := serve(t)
	for _, name := range []string{"posix-rename@openssh.com", "statvfs@openssh.com", "hardlink@openssh.com", "expand-path@openssh.com", "limits@openssh.com"} {
		if _, ok := c.HasExtension(name); !ok {
			t.Errorf("no %s", name)
		}
	}
	if at, err := c.Getwd(); err != nil || at != dir {
		t.Errorf("the directory is %q, %v", at, err)
	}
	content := bytes.Repeat([]byte("0123456789"), 200_000)
	f, err := c.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFrom(bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	past := time.Unix(1_000_000_000, 0)
	for what, err := range map[string]error{
		"close": f.Close(), "chmod": c.Chmod("a", 0o4750|os.ModeSetuid), "times": c.Chtimes("a", past, past),
		"link": c.Link("a", "hard"), "symlink": c.Symlink("a", "soft"), "posix rename": c.PosixRename("hard", "soft"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	info, err := os.Stat("a")
	if err != nil || info.Mode() != 0o750|os.ModeSetuid || !info.ModTime().Equal(past) || info.Size() != int64(len(content)) {
		t.Errorf("%v %v %d %v", info.Mode(), info.ModTime(), info.Size(), err)
	}
	if fs, err := c.StatVFS("."); err != nil || fs.Blocks == 0 {
		t.Errorf("%+v %v", fs, err)
	}
}

// The permissions that a client sends with a new file or directory count, less
// the umask; those of one that exists stay.
func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	_, dir := serve(t)
	r := &requests{home: homes}
	mkdir := func(name string, attrs ...uint32) []byte {
		b := build{}.uint32(7).text(filepath.Join(dir, name))
		for _, v := range attrs {
			b = b.uint32(v)
		}
		reply, err := r.answer(typeMkdir, packet{rest: b})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return reply
	}
	mkdir("plain", 0)
	mkdir("private", attrPermissions, 0o700)
	mkdir("shared", attrPermissions|attrSize|attrOwner, 0, 0, 0, 0, 0o1777)
	for name, want := range map[string]os.FileMode{"plain": 0o750, "private": 0o700, "shared": 0o750 | os.ModeSticky} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want|os.ModeDir {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if reply := mkdir("plain", 0); reply[12] != statusFailure {
		t.Errorf("again: %q", reply)
	}
	if reply := mkdir("missing/x", 0); reply[12] != statusNoSuchFile {
		t.Errorf("in a directory that is missing: %q", reply)
	}
}

func TestRenameReplacesNothing(t *testing.T) {
	c, _ := serve(t)
	for name, text := range map[string]string{"a": "one", "b": "two"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Rename("a", "b"); err == nil {
		t.Error("b was replaced")
	}
	if err := c.Rename("a", "c"); err != nil {
		t.Error(err)
	}
	if err := c.PosixRename("c", "b"); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile("b"); err != nil || string(b) != "one" {
		t.Errorf("%q %v", b, err)
	}
	if err := c.Rename("missing", "d"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestPaths(t *testing.T) {
	c, dir := serve(t)
	if err := os.MkdirAll("d/e", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink("d/e", "l"), os.Symlink("loop", "loop")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		".": dir, "l": dir + "/d/e", "l/..": dir + "/d", "l/new/deep": dir + "/d/e/new/deep", "/": "/", "/../..": "/", "loop": dir + "/loop",
	} {
		if got, err := c.RealPath(path); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", path, got, want, err)
		}
	}
	r := &requests{home: homes}
	for path, want := range map[string]string{"~": "/home/me", "~/x": "/home/me/x", "~root": "/root", "~root/../etc": "/etc", "d": dir + "/d", "~nobody/x": ""} {
		reply, err := r.answer(typeExtended, packet{rest: build{}.uint32(1).text("expand-path@openssh.com").text(path)})
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && reply[4] != typeStatus || !strings.Contains(string(reply), want) {
			t.Errorf("%s: %q, want %q", path, reply, want)
		}
	}
}

// What is no sftp ends the service, and nothing waits for ever.
func TestMalformed(t *testing.T) {
	t.Chdir(t.TempDir())
	whole := func(kind byte, body build) []byte { return append(newPacket(kind), body...) }
	for name, sent := range map[string][]byte{
		"no length":        {0, 0},
		"empty":            {0, 0, 0, 0, 0},
		"huge":             {0xff, 0xff, 0xff, 0xff, typeMkdir},
		"cut":              {0, 0, 0, 50, typeRealpath, 1, 2, 3},
		"cut for the rest": {0, 0, 0, 50, 17, 1, 2, 3},
		"no path":          build(whole(typeRealpath, build{}.uint32(1))).done(),
		"long path":        build(whole(typeMkdir, build{}.uint32(1).uint32(1<<31))).done(),
		"no name":          build(whole(typeExtended, build{}.uint32(1))).done(),
	} {
		t.Run(name, func(t *testing.T) {
			if err := Serve(bytes.NewReader(sent), io.Discard, homes); err == nil {
				t.Error("no error")
			}
		})
	}
	if err := Serve(strings.NewReader(""), io.Discard, homes); err != nil {
		t.Errorf("an end at once: %v", err)
	}
}

// Our answers and those of the server behind do not mix, and come in order.
func TestOrder(t *testing.T) {
	t.Chdir(t.TempDir())
	var sent, got bytes.Buffer
	sent.Write(newPacket(typeInit).uint32(3).done())
	for id := uint32(1); id <= 500; id++ {
		kind := byte(typeRealpath)
		if id%3 == 0 {
			kind = 17 // stat
		}
		sent.Write(newPacket(kind).uint32(id).text(".").done())
	}
	if err := Serve(&sent, &got, homes); err != nil {
		t.Fatal(err)
	}
	for id := uint32(0); got.Len() > 0; id++ {
		b := got.Next(4)
		b = got.Next(int(binary.BigEndian.Uint32(b)))
		if id > 0 && binary.BigEndian.Uint32(b[1:]) != id {
			t.Fatalf("the answer to %d is %q", id, b)
		}
		if id > 500 {
			t.Fatal("more answers than questions")
		}
	}
}

// FuzzAnswer asks anything that changes nothing.
func FuzzAnswer(f *testing.F) {
	f.Add(true, []byte(build{}.uint32(1).text("a/../b")))
	f.Add(false, []byte(build{}.uint32(1).text("expand-path@openssh.com").text("~root/x")))
	f.Add(false, []byte(build{}.uint32(1).text("limits@openssh.com")))
	f.Fuzz(func(t *testing.T, path bool, body []byte) {
		kind := byte(typeExtended)
		if path {
			kind = typeRealpath
		}
		reply, err := (&requests{home: homes}).answer(kind, packet{rest: body})
		if err != nil && !errors.Is(err, errMalformed) || err == nil && reply == nil && path {
			t.Fatalf("%q: %v", body, err)
		}
		if reply != nil && (int(binary.BigEndian.Uint32(reply)) != len(reply)-4 || !bytes.Equal(reply[5:9], body[:4])) {
			t.Errorf("%q is answered with %q", body, reply)
		}
	})
}
