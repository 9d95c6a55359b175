package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestReopen(t *testing.T) {
	// A path whose characters mean something in a URI.
	path := filepath.Join(t.TempDir(), "what? 100% #1 & ü", "state.db")
	s := openAt(t, path)
	create(t, s, newSandbox("sbx_1"))
	must(t, s.Close())
	must(t, s.Close()) // again does nothing
	noOtherFiles(t, path)
	_, err := s.Sandbox(t.Context(), "sbx_1")
	if err == nil {
		t.Error("a closed store answers")
	}

	s = openAt(t, path)
	_, err = s.Sandbox(t.Context(), "sbx_1")
	must(t, err)
	for name, want := range map[string]os.FileMode{"": 0o700, "state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600} {
		info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
		if must(t, err); info.Mode().Perm() != want {
			t.Errorf("%q has mode %v, want %v", name, info.Mode(), want)
		}
	}
}

// TestSettings looks at what durability stands on.
func TestSettings(t *testing.T) {
	s := openStore(t)
	for _, c := range []struct {
		db           *sql.DB
		pragma, want string
	}{
		{s.write, "journal_mode", "wal"}, {s.write, "synchronous", "2"}, {s.write, "foreign_keys", "1"},
		{s.write, "busy_timeout", "5000"}, {s.read, "busy_timeout", "5000"}, {s.read, "query_only", "1"},
		{s.read, "application_id", fmt.Sprint(applicationID)},
	} {
		var got string
		must(t, c.db.QueryRowContext(t.Context(), "PRAGMA "+c.pragma).Scan(&got))
		if got != c.want {
			t.Errorf("%s is %s, want %s", c.pragma, got, c.want)
		}
	}
	if n := s.write.Stats().MaxOpenConnections; n != 1 {
		t.Errorf("%d connections can write", n)
	}
}

func TestOpenRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string) string // returns the path
		code    fault.Code
		want    string
	}{
		"no parent": {func(_ *testing.T, dir string) string {
			return filepath.Join(dir, "a", "b", "state.db")
		}, fault.Unavailable, "/a does not exist: make that first"},
		"folder is a file": {func(t *testing.T, dir string) string {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
			return filepath.Join(dir, "file", "state.db")
		}, fault.Invalid, "is not a folder"},
		"database is a folder": {func(t *testing.T, dir string) string {
			t.Helper()
			must(t, os.Mkdir(filepath.Join(dir, "state.db"), 0o700))
			return filepath.Join(dir, "state.db")
		}, fault.Invalid, "is not a file"},
		"others can write": {func(t *testing.T, dir string) string {
			t.Helper()
			must(t, os.Chmod(dir, 0o770))
			return filepath.Join(dir, "state.db")
		}, fault.Unavailable, "others can write to the state folder"},
		"not a database": {func(t *testing.T, dir string) string {
			t.Helper()
			path := filepath.Join(dir, "state.db")
			must(t, os.WriteFile(path, []byte(strings.Repeat("hello ", 1000)), 0o600))
			return path
		}, fault.Unavailable, "is damaged: stop sandgate and restore"},
		"cut off": {func(t *testing.T, dir string) string {
			t.Helper()
			path := filepath.Join(dir, "state.db")
			writeVersion(t, path, 2)
			must(t, os.Truncate(path, 4096+100))
			return path
		}, fault.Unavailable, "is damaged: stop sandgate and restore"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), Config{Path: c.prepare(t, t.TempDir())})
			e := wantCode(t, err, c.code)
			if !strings.Contains(e.Error(), c.want) || strings.Contains(e.Error(), "\n") {
				t.Errorf("got %q, want %q in it", e.Error(), c.want)
			}
		})
	}
}

func TestOpenPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Chmod(path, 0o644))
	openAt(t, path)
	info, err := os.Stat(path)
	if must(t, err); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// openerEnv makes the test binary open the database it names and print the error.
const openerEnv = "SANDGATE_TEST_STORE_OPENER"

func opener(path string) {
	_, err := Open(context.Background(), Config{Path: path})
	fmt.Print(fault.CodeOf(err), " ", err)
	os.Exit(0)
}

// TestOpenForbidden opens what another user owns.
func TestOpenForbidden(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be two users")
	}
	dir := t.TempDir()
	for p := dir; p != "/"; p = filepath.Dir(p) { // so that it is this folder that nobody may enter
		if info, err := os.Stat(p); err == nil && info.Mode().Perm()&1 == 0 {
			must(t, os.Chmod(p, info.Mode().Perm()|1))
		}
	}
	closed, foreign := filepath.Join(dir, "closed"), filepath.Join(dir, "foreign")
	must(t, os.Mkdir(closed, 0o700))
	must(t, os.Mkdir(foreign, 0o755))
	must(t, os.WriteFile(filepath.Join(foreign, "state.db"), nil, 0o600))
	for path, want := range map[string]string{
		filepath.Join(closed, "state.db"):  "UNAVAILABLE this user may not use the state folder " + closed + ": run as its owner, or name another folder",
		filepath.Join(foreign, "new.db"):   "UNAVAILABLE this user may not use the state folder " + foreign + ": run as its owner, or name another folder",
		filepath.Join(foreign, "state.db"): "UNAVAILABLE the state database " + foreign + "/state.db cannot be written: check that it is there and who owns it",
		filepath.Join(dir, "x", "new.db"):  "UNAVAILABLE this user may not use the state folder " + dir + "/x: run as its owner, or name another folder",
	} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), openerEnv+"="+path)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		got, err := cmd.CombinedOutput()
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q (%v)\nwant %q", path, got, err, want)
		}
	}
}

// TestLocked has another program hold the database.
func TestLocked(t *testing.T) {
	s := openStore(t)
	create(t, s, newSandbox("sbx_1"))
	_, err := s.write.ExecContext(t.Context(), "PRAGMA busy_timeout=10") // for this test only: to wait less
	must(t, err)
	other, err := sql.Open("sqlite", s.dsn("_txlock=immediate"))
	must(t, err)
	defer other.Close()
	tx, err := other.BeginTx(t.Context(), nil)
	must(t, err)

	err = s.CreateSandbox(t.Context(), newSandbox("sbx_2"), sandbox.Event{})
	e := wantCode(t, err, fault.Unavailable)
	if want := "another program holds the state database " + s.path + ": close it and try again"; e.Error() != want {
		t.Errorf("got %q, want %q", e.Error(), want)
	}
	_, err = s.Sandbox(t.Context(), "sbx_1") // reading goes on
	must(t, err)
	must(t, tx.Rollback())
	create(t, s, newSandbox("sbx_2"))
}

// TestDamaged spoils half of the file.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openAt(t, path)
	for i := range 200 {
		create(t, s, newSandbox(fmt.Sprint("sbx_", i)))
	}
	must(t, s.Close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	info, err := f.Stat()
	must(t, err)
	half := info.Size() / 2 // the first half has what is looked at to open it
	_, err = f.WriteAt([]byte(strings.Repeat("\xff", int(info.Size()-half))), half)
	must(t, err)
	must(t, f.Close())
	// Opening may meet the damage already, depending on where the schema lies.
	s, err = Open(t.Context(), Config{Path: path})
	if err == nil {
		t.Cleanup(func() { s.Close() })
		_, _, err = s.Sandboxes(t.Context(), sandbox.SandboxFilter{})
	}
	e := wantCode(t, err, fault.Unavailable)
	if !strings.Contains(e.Error(), "is damaged: stop sandgate and restore") {
		t.Errorf("got %q", e.Error())
	}
}

func TestUnstorable(t *testing.T) {
	s := openStore(t)
	sb := newSandbox("sbx_1")
	sb.Metadata = map[string]json.RawMessage{"k": json.RawMessage("{")}
	e := wantCode(t, s.CreateSandbox(t.Context(), sb, sandbox.Event{}), fault.Invalid)
	if e.Error() != "a value is not valid JSON" {
		t.Errorf("got %q", e.Error())
	}
	sb = newSandbox("sbx_1")
	sb.ActiveAt = epoch.AddDate(8000, 0, 0)
	e = wantCode(t, s.CreateSandbox(t.Context(), sb, sandbox.Event{}), fault.Invalid)
	if !strings.Contains(e.Error(), "is not between 1678 and 2262") {
		t.Errorf("got %q", e.Error())
	}
}
