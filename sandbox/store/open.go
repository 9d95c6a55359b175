package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// busyTimeout is how long a write waits for a lock that another process holds
// (a backup, somebody's sqlite3 shell) before it gives up as Unavailable.
const busyTimeout = 5 * time.Second

// readers is how many reads can go on at the same time.
const readers = 4

// Config says where the database is and what the store takes from outside.
type Config struct {
	// Path is the database file. Its folder is made, private, when it is
	// missing (its parent is not); a folder that others can write to is
	// refused. The file, and SQLite's two beside it, have mode 0600.
	Path string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// NewID makes the id of an event that came without one. It is called
	// with the prefix alone, "evt", and returns "evt_" and the rest; nil is
	// sandbox.NewID.
	NewID func(prefix string) string
	// Log hears of migrations; nil is silence.
	Log *slog.Logger
}

// Store implements sandbox.Store. Its methods may be called concurrently.
type Store struct {
	path  string
	now   func() time.Time
	newID func(prefix string) string
	log   *slog.Logger

	write *sql.DB // one connection; every transaction on it begins immediate
	read  *sql.DB // query_only connections

	catalogue catalogue

	writtenMu sync.Mutex
	written   chan struct{} // closed at the next write; nil while nobody waits for one

	close func() error
}

var _ sandbox.Store = (*Store)(nil)

// Open opens the database, making or migrating it first where needed. Errors
// are fault errors; after an error nothing stays open.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := newStore(c)
	if err != nil {
		return nil, err
	}
	all, err := migrations()
	if err != nil {
		return nil, s.fail(ctx, "read migrations", err)
	}
	if err := s.open(ctx, all); err != nil {
		return nil, err
	}
	return s, nil
}

// newStore returns a store that is not open yet.
func newStore(c Config) (*Store, error) {
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "%q is not the path of a state database", c.Path)
	}
	s := &Store{path: path, newID: c.NewID, log: c.Log}
	now := c.Now
	if now == nil {
		now = time.Now
	}
	// As it will be read back: UTC, without a monotonic part.
	s.now = func() time.Time { return now().UTC().Round(0) }
	if s.newID == nil {
		s.newID = sandbox.NewID
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// open prepares the file, opens both pools and brings the schema up to date.
func (s *Store) open(ctx context.Context, all []migration) (err error) {
	if err := s.prepareFolder(); err != nil {
		return err
	}
	if err := s.prepareFile(); err != nil {
		return err
	}
	s.write, err = sql.Open("sqlite", s.dsn("_txlock=immediate", "_synchronous=FULL", "_foreign_keys=1"))
	if err != nil {
		return s.fail(ctx, "open state database", err)
	}
	s.write.SetMaxOpenConns(1)
	s.read, err = sql.Open("sqlite", s.dsn("_query_only=1"))
	if err != nil {
		_ = s.write.Close() // nothing was opened yet
		return s.fail(ctx, "open state database", err)
	}
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	s.close = sync.OnceValue(func() error {
		// The writer is last: as the last connection it folds the WAL into
		// the database and removes it.
		return errors.Join(s.read.Close(), s.write.Close())
	})
	if err := s.migrate(ctx, all); err != nil {
		_ = s.close() // the first error is the one that helps
		return err
	}
	return nil
}

// dsn returns the data source name with the parameters every connection has
// and some more. The path is escaped, so that no character of it is a parameter.
func (s *Store) dsn(params ...string) string {
	u := url.URL{Scheme: "file", Path: s.path}
	common := []string{
		fmt.Sprintf("_busy_timeout=%d", busyTimeout.Milliseconds()),
		"mode=rw",      // the file exists; one that vanished is an error
		"_dqs=0",       // "x" is a column, never a string
		"_defensive=1", // no statement can corrupt the file
		"_error_rc=1",  // messages that belong to their code
		"_pragma=trusted_schema(0)",
		"_pragma=temp_store(2)",
	}
	return u.String() + "?" + strings.Join(append(common, params...), "&")
}

// Close ends the store and folds the WAL into the database file. Calls that
// are under way end by themselves. Closing again does nothing.
func (s *Store) Close() error {
	if err := s.close(); err != nil {
		return s.fail(context.Background(), "close state database", err)
	}
	return nil
}
