package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// openVersion opens a store as a program did that knew no more than all.
func openVersion(t *testing.T, path string, all []migration) (*Store, error) {
	t.Helper()
	s, err := newStore(Config{Path: path, Now: func() time.Time { return epoch }})
	must(t, err)
	if err := s.open(t.Context(), all); err != nil {
		return nil, err
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return s, nil
}

func allMigrations(t *testing.T) []migration {
	t.Helper()
	all, err := migrations()
	must(t, err)
	return all
}

// writeVersion leaves a database with records as version n left it, having been
// brought there version by version.
func writeVersion(t *testing.T, path string, n int) {
	t.Helper()
	for v := 1; v <= n; v++ {
		s, err := openVersion(t, path, allMigrations(t)[:v])
		must(t, err)
		records, err := os.ReadFile(fmt.Sprintf("testdata/v%d.sql", v))
		if err != nil {
			t.Fatalf("every version needs records that show what becomes of them: %v", err)
		}
		_, err = s.write.ExecContext(t.Context(), string(records))
		must(t, err)
		must(t, s.Close())
	}
}

// TestMigrateFrom migrates from every version there ever was.
func TestMigrateFrom(t *testing.T) {
	for n := 1; n <= len(allMigrations(t)); n++ {
		t.Run(fmt.Sprint("v", n), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			writeVersion(t, path, n)
			s := openAt(t, path)
			version, err := schemaVersion(t.Context(), s.read)
			if must(t, err); version != len(allMigrations(t)) {
				t.Fatalf("version %d", version)
			}
			sb, err := s.Sandbox(t.Context(), "sbx_old")
			must(t, err)
			at := time.Unix(0, 1772600767000000089).UTC()
			same(t, "sandbox", sb, sandbox.Sandbox{
				ID: "sbx_old", Name: "web", Description: "d", Mode: sandbox.Interactive, Status: sandbox.Running, Owner: "alice",
				Project: "p", Org: "o", Driver: "gvisor",
				Runtime:  sandbox.RuntimeRef{ID: "srt_1", Name: "base:latest", Tags: []string{"debian"}, Source: "this host"},
				Limits:   sandbox.Limits{MemoryBytes: 1 << 30, CPUMillis: 500, Processes: 100},
				Env:      map[string]string{"A": "b"},
				Metadata: map[string]json.RawMessage{"k": json.RawMessage("[1]")},
				Timeouts: sandbox.Timeouts{Idle: 10 * time.Minute}, Executions: 1, Guest: "abc",
				CreatedAt: at, UpdatedAt: time.Unix(1772600768, 0).UTC(),
			})
			open, err := s.OpenExecutions(t.Context())
			must(t, err)
			if len(open) != 1 || open[0].ID != "exec_old" || len(open[0].Command) != 2 || open[0].StderrBytes != 2 {
				t.Errorf("executions %+v", open)
			}
			// Life goes on where it was.
			_, err = s.UpdateExecution(t.Context(), "exec_old", func(x *sandbox.Execution) ([]sandbox.Event, error) {
				x.Status = sandbox.ExecCompleted
				return []sandbox.Event{{Type: sandbox.EventExecEnded}}, nil
			})
			must(t, err)
			events := checkEvents(t, s, "sbx_old")
			if len(events) != 3 || events[0].ID != "evt_1" || events[0].Data["n"] != 1.0 || !events[0].At.Equal(at) {
				t.Errorf("events %+v", events)
			}
			list, err := s.Keys(t.Context())
			must(t, err)
			if n >= 2 {
				same(t, "keys", list, []keys.Key{{
					Fingerprint: "SHA256:old", Type: "ssh-ed25519", PublicKey: "ssh-ed25519 AAAA", Comment: "alice@laptop",
					Principal: "alice", Role: keys.Admin, CreatedAt: at,
				}})
				api, err := s.APIKeyByHash(t.Context(), "c0ffee")
				must(t, err)
				same(t, "API key", api, keys.APIKey{ID: "key_old", Name: "ci", Principal: "alice", Role: keys.Member, Hash: "c0ffee", CreatedAt: at})
			}
			must(t, s.AddKey(t.Context(), keys.Key{Fingerprint: "SHA256:new"}))
		})
	}
}

// TestMigrationFails: a migration that fails changes nothing, and the next
// start tries again.
func TestMigrationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	writeVersion(t, path, 2)
	all := allMigrations(t)
	next := migration{len(all) + 1, "next", "CREATE TABLE next (a TEXT); INSERT INTO nowhere VALUES (1)"}
	_, err := openVersion(t, path, append(all, next))
	wantCode(t, err, fault.Internal)

	s := openAt(t, path)
	version, err := schemaVersion(t.Context(), s.read)
	if must(t, err); version != len(all) {
		t.Errorf("version %d", version)
	}
	must(t, s.Close())
	next.sql = "CREATE TABLE next (a TEXT)" // fails if half of it was left
	_, err = openVersion(t, path, append(all, next))
	must(t, err)
}

func TestNewerDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	writeVersion(t, path, 2)
	all := allMigrations(t)
	s, err := openVersion(t, path, append(all, migration{len(all) + 1, "later", "ALTER TABLE keys ADD COLUMN later TEXT"}))
	must(t, err)
	must(t, s.Close())
	before, err := os.ReadFile(path)
	must(t, err)

	_, err = Open(t.Context(), Config{Path: path})
	e := wantCode(t, err, fault.Unsupported)
	want := fmt.Sprintf("has version %d and this sandgate knows up to %d", len(all)+1, len(all))
	if !strings.Contains(e.Error(), want) || !strings.Contains(e.Error(), filepath.Dir(path)) {
		t.Errorf("got %q, want %q in it", e.Error(), want)
	}
	after, err := os.ReadFile(path)
	if must(t, err); string(after) != string(before) {
		t.Error("the newer database was changed")
	}
	noOtherFiles(t, path)
}

// noOtherFiles fails the test when there is more than the database.
func noOtherFiles(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if must(t, err); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestDatabaseOfAnotherProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE t (a)")
	must(t, err)
	must(t, db.Close())
	_, err = Open(t.Context(), Config{Path: path})
	e := wantCode(t, err, fault.Invalid)
	if !strings.Contains(e.Error(), "is a database of another program") {
		t.Errorf("got %q", e.Error())
	}
	noOtherFiles(t, path)
}

// TestOpenTogether opens a new database from several sides at once.
func TestOpenTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			s, err := Open(context.Background(), Config{Path: path})
			if err != nil {
				t.Errorf("%v (%v)", err, fault.From(err).Cause)
				return
			}
			if err := s.CreateSandbox(context.Background(), newSandbox(fmt.Sprint(i)), sandbox.Event{}); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	_, total, err := openAt(t, path).Sandboxes(t.Context(), sandbox.SandboxFilter{})
	if must(t, err); total != 4 {
		t.Errorf("%d of 4 sandboxes", total)
	}
}
