package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func readAll(t *testing.T, c *guest.Conn, path string) (string, fs.FileMode) {
	t.Helper()
	f, err := c.ReadFile(testContext(t), path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	file := f.(*guest.File)
	if file.Size() != int64(len(b)) {
		t.Errorf("%s: size %d, but %d bytes", path, file.Size(), len(b))
	}
	return string(b), file.Mode()
}

func TestFiles(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	big := make([]byte, 5<<20)
	rand.NewChaCha8([32]byte{2}).Read(big)
	for _, tc := range []struct {
		path    string
		perm    fs.FileMode
		content string
	}{
		{"empty", 0o644, ""},
		{"text", 0o600, "hello\n"},
		{"run", 0o755, "#!/bin/sh\n"},
		{"new/dirs/file", 0o640, "deep"},
		{s.workspace + "/absolute", 0o444, "x"},
		{"big", 0o644, string(big)},
		{"text", 0o644, "again"},
		{"späces and ünicode", 0o644, "x"},
	} {
		if err := c.WriteFile(testContext(t), tc.path, tc.perm, strings.NewReader(tc.content)); err != nil {
			t.Errorf("write %s: %v", tc.path, err)
			continue
		}
		if got, mode := readAll(t, c, tc.path); got != tc.content || mode != tc.perm {
			t.Errorf("%s: %d bytes with mode %o, want %d with %o", tc.path, len(got), mode, len(tc.content), tc.perm)
		}
	}
	entries, err := os.ReadDir(s.workspace)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

func TestFileErrors(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	ctx := testContext(t)
	fifo := filepath.Join(s.workspace, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.workspace, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path        string
		read, write fault.Code
		says        string
	}{
		{"", fault.Invalid, fault.Invalid, "path"},
		{"none", fault.NotFound, "", "none: no such file"},
		{s.workspace, fault.Invalid, fault.Invalid, "is a directory"},
		{"dir/", fault.NotFound, fault.Invalid, "dir"},
		{"file/below", fault.Invalid, fault.Invalid, "not a directory"},
		{"fifo", fault.Invalid, fault.Invalid, "not a regular file"}, // and does not hang
		{"/dev/null", fault.Invalid, fault.Invalid, "not a regular file"},
		{"a\x00b", fault.Invalid, fault.Invalid, "path"},
		{strings.Repeat("x/", 3000), fault.Invalid, fault.Invalid, "path"},
		{strings.Repeat("x", 300), fault.Invalid, fault.Invalid, "too long"},
		{"/proc/1/mem-of-nobody", fault.NotFound, "", ""},
	} {
		if f, err := c.ReadFile(ctx, tc.path); !fault.Is(err, tc.read) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("read %.20q: %v", tc.path, err)
			if err == nil {
				f.Close()
			}
		}
		if tc.write == "" {
			continue
		}
		if err := c.WriteFile(ctx, tc.path, 0o600, strings.NewReader("x")); !fault.Is(err, tc.write) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("write %.20q: %v", tc.path, err)
		}
	}
}

// A file appears whole or not at all.
func TestWriteFileIsAtomic(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	ctx := testContext(t)
	path := filepath.Join(s.workspace, "file")
	if err := c.WriteFile(ctx, "file", 0o600, strings.NewReader("before")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken source")
	err := c.WriteFile(ctx, "file", 0o600, io.MultiReader(strings.NewReader("after"), errorReader{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("broken source: %v", err)
	}

	cancelled, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() { result <- c.WriteFile(cancelled, "file", 0o600, r) }()
	w.Write(bytes.Repeat([]byte("after"), 100_000))
	cancel()
	w.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-result; err == nil {
		t.Error("a cancelled write succeeded")
	}

	other := s.connect(t)
	r, w = io.Pipe()
	go func() { result <- other.WriteFile(ctx, "file", 0o600, r) }()
	w.Write([]byte("after"))
	other.Close()
	w.Close()
	if err := <-result; !errors.Is(err, guest.ErrLost) {
		t.Errorf("connection lost: %v", err)
	}

	if b, err := os.ReadFile(path); string(b) != "before" {
		t.Errorf("%q %v", b, err)
	}
	for { // the guest drops what it has when it learns of the end
		entries, err := os.ReadDir(s.workspace)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 1 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("left behind: %v", entries)
		}
	}
}

type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }

func TestWriteFileThroughLink(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	if err := os.Symlink("target", filepath.Join(s.workspace, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.workspace, "target"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteFile(testContext(t), "link", 0o600, strings.NewReader("through")); err != nil {
		t.Fatal(err)
	}
	if got, _ := readAll(t, c, "target"); got != "through" {
		t.Errorf("%q", got)
	}
	if _, err := os.Readlink(filepath.Join(s.workspace, "link")); err != nil {
		t.Error(err)
	}
}

// A reader who leaves early, or is slow, holds up nobody.
func TestReadFileLeaveEarly(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	if err := os.WriteFile(filepath.Join(s.workspace, "big"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		f, err := c.ReadFile(testContext(t), "big")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(f, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if _, err := f.Read(make([]byte, 1<<20)); err == io.EOF {
			t.Error("a file that was left early ends well")
		}
	}
	if err := c.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestReadFileLost(t *testing.T) {
	s := newSandbox(t, nil)
	c := s.connect(t)
	if err := os.WriteFile(filepath.Join(s.workspace, "big"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := c.ReadFile(testContext(t), "big")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c.Close()
	if n, err := io.Copy(io.Discard, f); !errors.Is(err, guest.ErrLost) {
		t.Errorf("a file cut off at %d bytes: %v", n, err)
	}
}
