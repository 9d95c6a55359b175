package agent

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// maxAccounts bounds an account file, and maxAccountLine one line of it.
const (
	maxAccounts    = 1 << 20
	maxAccountLine = 16 << 10
)

// accounts is a file of colon-separated lines, read again when it has changed:
// every start of a process asks for it.
type accounts struct {
	path   string
	fields int

	mu     sync.Mutex
	seen   fs.FileInfo // the file as it was when it was read
	parsed [][]string
}

// settled is how old the last change of a file has to be for its time to tell
// the next change from it.
const settled = 2 * time.Second

// lines returns the lines of the file, which the caller does not change. A
// missing file is empty; anything that is not a regular file is refused, so
// that no reader waits at a pipe that somebody put there.
func (a *accounts) lines() ([][]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, err := os.Stat(a.path)
	if err == nil && a.seen != nil && os.SameFile(a.seen, now) && a.seen.Size() == now.Size() && a.seen.ModTime().Equal(now.ModTime()) {
		return a.parsed, nil
	}
	a.seen, a.parsed = nil, nil
	f, err := openRegular(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fileError(err, "read", a.path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fileError(err, "read", a.path)
	}
	content := make([]byte, min(info.Size(), maxAccounts))
	n, err := readUpTo(f, content)
	if err != nil {
		return nil, fileError(err, "read", a.path)
	}
	parsed := parseAccounts(string(content[:n]), a.fields)
	if time.Since(info.ModTime()) > settled {
		a.seen, a.parsed = info, parsed
	}
	return parsed, nil
}

// parseAccounts splits lines into fields; lines that are too long, are
// comments, or have another number of fields are skipped.
func parseAccounts(content string, fields int) [][]string {
	var lines [][]string
	for line := range strings.Lines(content) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' || len(line) > maxAccountLine || strings.ContainsRune(line, 0) {
			continue
		}
		if parts := strings.SplitN(line, ":", fields+1); len(parts) == fields {
			lines = append(lines, parts)
		}
	}
	return lines
}
