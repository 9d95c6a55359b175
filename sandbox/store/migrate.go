package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// applicationID marks a database file as ours, for file(1) and for us: "SGAT".
const applicationID = 0x53474154

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one numbered step of the schema.
type migration struct {
	version int
	name    string // "0002_keys"
	sql     string
}

// migrations returns the embedded steps: versions 1, 2, 3 … without a gap.
func migrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, file := range names { // sorted, as fs.Glob promises
		text, err := migrationFiles.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql")
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, fmt.Errorf("migration %s should have number %d", file, i+1)
		}
		all = append(all, migration{version: i + 1, name: name, sql: string(text)})
	}
	return all, nil
}

// migrate brings the database to the newest version this program knows, the
// last of all. Nothing is changed in a file that is not ours or is newer.
func (s *Store) migrate(ctx context.Context, all []migration) error {
	version, err := s.checkIdentity(ctx, len(all))
	if err != nil {
		return err
	}
	var mode string
	if err := s.write.QueryRowContext(ctx, "PRAGMA journal_mode=WAL").Scan(&mode); err != nil {
		return s.fail(ctx, "switch state database to WAL", err)
	}
	if mode != "wal" {
		return fault.New(fault.Unavailable,
			"the file system of %s cannot hold the state database (no shared memory): name a state folder on a local disk", s.folder())
	}
	for _, m := range all[version:] {
		if err := s.apply(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// checkIdentity returns the version of the database, 0 for an empty one.
func (s *Store) checkIdentity(ctx context.Context, known int) (int, error) {
	var id, objects int
	err := s.write.QueryRowContext(ctx,
		"SELECT (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)").Scan(&id, &objects)
	if err != nil {
		return 0, s.fail(ctx, "open state database", err)
	}
	if id == 0 && objects == 0 {
		return 0, nil
	}
	if id != applicationID {
		return 0, fault.New(fault.Invalid, "%s is a database of another program: name another state folder", s.path)
	}
	version, err := schemaVersion(ctx, s.write)
	if err != nil {
		return 0, s.fail(ctx, "read schema version", err)
	}
	if version > known {
		return 0, fault.New(fault.Unsupported,
			"the state in %s has version %d and this sandgate knows up to %d: use the newer sandgate that wrote it, or name another state folder",
			s.folder(), version, known)
	}
	return version, nil
}

func schemaVersion(ctx context.Context, q queryer) (int, error) {
	var version int
	err := q.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM migrations").Scan(&version)
	return version, err
}

// apply runs one migration, unless another process has done so meanwhile.
func (s *Store) apply(ctx context.Context, m migration) error {
	applied := false
	err := s.transact(ctx, "apply migration "+m.name, func(tx *sql.Tx) error {
		if m.version == 1 {
			// The note of what was applied comes with the first migration.
			_, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA application_id=%d;
				CREATE TABLE IF NOT EXISTS migrations (
				  version    INTEGER NOT NULL PRIMARY KEY,
				  name       TEXT    NOT NULL,
				  applied_at INTEGER NOT NULL
				) STRICT`, applicationID))
			if err != nil {
				return err
			}
		}
		version, err := schemaVersion(ctx, tx)
		if err != nil || version >= m.version {
			return err
		}
		if _, err := tx.ExecContext(ctx, m.sql); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO migrations (version, name, applied_at) VALUES (?,?,?)",
			m.version, m.name, nanos(s.now()))
		applied = err == nil
		return err
	})
	if err == nil && applied {
		s.log.Info("state database migrated", "migration", m.name)
	}
	return err
}
