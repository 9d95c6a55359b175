package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// fail turns an error of the database into a fault. op says for the log what
// was going on. An error that is a fault already stays as it is.
func (s *Store) fail(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	err = fmt.Errorf("%s: %w", op, err)
	if ctx.Err() != nil && gaveUp(err) {
		return fault.From(errors.Join(ctx.Err(), err))
	}
	if u, ok := errors.AsType[*unstorableError](err); ok {
		return fault.Wrap(err, fault.Invalid, "%v", u)
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return fault.From(err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return s.diskFull(err)
	case sqlite3.SQLITE_IOERR:
		// SQLite has no code of its own for a disk that has no room for its
		// shared-memory file.
		if noRoom(s.folder()) {
			return s.diskFull(err)
		}
		return fault.Wrap(err, fault.Unavailable,
			"the disk that holds the state reports an error: check the disk of %s, then start sandgate again", s.folder())
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fault.Wrap(err, fault.Unavailable,
			"the state database %s is damaged: stop sandgate and restore the file from a backup, or move it away to start empty", s.path)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return fault.Wrap(err, fault.Unavailable,
			"another program holds the state database %s: close it and try again", s.path)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return fault.Wrap(err, fault.Unavailable,
			"the state database %s cannot be written: check that it is there and who owns it", s.path)
	case sqlite3.SQLITE_NOMEM:
		return fault.Wrap(err, fault.Exhausted, "the machine is out of memory")
	case sqlite3.SQLITE_TOOBIG:
		return fault.Wrap(err, fault.Invalid, "a value is too large to be recorded")
	}
	if taken(err) {
		return fault.Wrap(err, fault.Exists, "the id is taken")
	}
	return fault.From(err)
}

// gaveUp reports whether err is what database/sql or SQLite say when the
// context has ended under a call.
func gaveUp(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone) {
		return true
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_INTERRUPT
}

// taken reports whether err is the violation of a unique index or a primary
// key, on one of the columns ("sandboxes.name") when some are given.
func taken(err error, columns ...string) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code() != sqlite3.SQLITE_CONSTRAINT_UNIQUE && e.Code() != sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY {
		return false
	}
	for _, c := range columns {
		if strings.Contains(e.Error(), c) {
			return true
		}
	}
	return len(columns) == 0
}

func (s *Store) diskFull(cause error) error {
	return fault.Wrap(cause, fault.Exhausted,
		"the disk that holds the state is full: free some space in %s", s.folder())
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// noRoom reports whether the file system of dir has less room left than
// SQLite's smallest file needs.
func noRoom(dir string) bool {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return false
	}
	return st.Bavail*uint64(st.Bsize) < 64<<10
}
