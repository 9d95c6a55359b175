package auditlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/auditlog"
)

func open(t *testing.T, cfg auditlog.Config) *auditlog.Log {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "audit.log")
	}
	l, err := auditlog.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func record(i int) sandbox.AuditRecord {
	return sandbox.AuditRecord{Kind: sandbox.AuditStart, Principal: "alice", Channel: int64(i), Time: time.Unix(int64(i), 0)}
}

func read(t *testing.T, l *auditlog.Log, q sandbox.AuditQuery) (channels []int64) {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 10000
	}
	err := l.ReadAudit(t.Context(), q, func(r *sandbox.AuditRecord) error {
		channels = append(channels, r.Channel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return channels
}

// What is written is read again, over all files, the last ones first to stay.
func TestWriteRead(t *testing.T) {
	l := open(t, auditlog.Config{MaxBytes: 1000, Keep: 3})
	for i := 1; i <= 100; i++ {
		l.Write(record(i))
	}
	all := read(t, l, sandbox.AuditQuery{})
	if n := len(all); n < 20 || n > 60 || all[n-1] != 100 || all[0] != int64(100-n+1) {
		t.Errorf("%d records, %v", n, all)
	}
	if got := fmt.Sprint(read(t, l, sandbox.AuditQuery{Limit: 2})); got != "[99 100]" {
		t.Errorf("the last two are %s", got)
	}
	if got := fmt.Sprint(read(t, l, sandbox.AuditQuery{Since: time.Unix(98, 0)})); got != "[98 99 100]" {
		t.Errorf("since: %s", got)
	}
	for _, q := range []sandbox.AuditQuery{{Principal: "bob"}, {Sandbox: "sbx_x"}, {Kinds: []sandbox.AuditKind{sandbox.AuditEnd}}} {
		if got := read(t, l, q); got != nil {
			t.Errorf("%+v: %v", q, got)
		}
	}
	names, _ := filepath.Glob(l.Path() + "*")
	if len(names) != 4 {
		t.Errorf("files %v", names)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 1000 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// A line that a crash has cut, and lines of others, do not hide the next ones.
func TestCutLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte("garbage\n{\"kind\":\"login\",\"princ"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := open(t, auditlog.Config{Path: path})
	l.Write(record(1))
	if got := fmt.Sprint(read(t, l, sandbox.AuditQuery{})); got != "[1]" {
		t.Errorf("read %s", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Who follows misses nothing, however often files are changed meanwhile, and
// goes on when somebody else takes the file away.
func TestFollow(t *testing.T) {
	l := open(t, auditlog.Config{MaxBytes: 2000, Keep: 20})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan int64, 1000)
	done := make(chan error, 1)
	go func() {
		done <- l.ReadAudit(ctx, sandbox.AuditQuery{Follow: true, Limit: 10}, func(r *sandbox.AuditRecord) error {
			if r != nil {
				got <- r.Channel
			}
			return nil
		})
	}()
	expect := func(from, to int) {
		t.Helper()
		seen := map[int64]bool{}
		late := time.After(time.Minute)
		for len(seen) < to-from {
			select {
			case c := <-got:
				if c < int64(from) || c >= int64(to) || seen[c] {
					t.Fatalf("record %d is not expected", c)
				}
				seen[c] = true
			case <-late:
				t.Fatalf("%d records of %d", len(seen), to-from)
			}
		}
	}
	write := func(from, to int) {
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				for j := from + i; j < to; j += 2 {
					l.Write(record(j))
				}
			})
		}
		wg.Wait()
	}
	write(0, 1)
	expect(0, 1)
	write(1, 150)
	expect(1, 150)
	if err := os.Rename(l.Path(), l.Path()+".moved"); err != nil {
		t.Fatal(err)
	}
	write(150, 155)
	expect(150, 155)
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	write(155, 200)
	expect(155, 200)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// Who is slow misses nothing that is still there, whatever became meanwhile of
// the file they were reading.
func TestFollowSlowly(t *testing.T) {
	for name, c := range map[string]struct {
		keep  int
		lose  func(l *auditlog.Log) error
		first int64 // that is still there
	}{
		"taken away": {20, func(l *auditlog.Log) error {
			return errors.Join(os.Rename(l.Path(), l.Path()+".moved"), l.Reopen())
		}, 2},
		"removed":           {20, func(l *auditlog.Log) error { return errors.Join(os.Remove(l.Path()), l.Reopen()) }, 2},
		"full":              {20, func(*auditlog.Log) error { return nil }, 2},
		"more than is kept": {3, func(*auditlog.Log) error { return nil }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, auditlog.Config{MaxBytes: 500, Keep: c.keep})
			reading, goOn := make(chan bool), make(chan bool)
			var got []int64
			l.Write(record(1))
			end := errors.New("all is read")
			done := make(chan error, 1)
			go func() {
				done <- l.ReadAudit(t.Context(), sandbox.AuditQuery{Follow: true, Limit: 10}, func(r *sandbox.AuditRecord) error {
					switch {
					case r == nil:
						reading <- true
						<-goOn
					default:
						got = append(got, r.Channel)
						if r.Channel == 60 {
							return end
						}
					}
					return nil
				})
			}()
			<-reading
			if err := c.lose(l); err != nil {
				t.Fatal(err)
			}
			for i := 2; i <= 60; i++ {
				l.Write(record(i))
			}
			if c.first < 0 {
				c.first = read(t, l, sandbox.AuditQuery{})[0]
			}
			close(goOn)
			if err := <-done; !errors.Is(err, end) {
				t.Fatal(err)
			}
			// The rest of the file it had open when that was full, and all that is kept.
			got = got[1:]
			if i := slices.Index(got, c.first); i < 0 || len(got[i:]) != 60-int(c.first)+1 {
				t.Errorf("from %d on it got %v", c.first, got)
			}
		})
	}
}

// An error of the disk stops nobody, is told, and passes.
func TestDiskError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	var said strings.Builder
	now := time.Unix(1000, 0)
	l := open(t, auditlog.Config{
		Path: path, MaxBytes: 1, Keep: 1, Log: slog.New(slog.NewTextHandler(&said, nil)),
		Now: func() time.Time { return now },
	})
	l.Write(record(1))
	// The next one is to go into a new file, which cannot be made.
	if err := os.Mkdir(path+".1", 0o700); err != nil {
		t.Fatal(err)
	}
	l.Write(record(2))
	if !strings.Contains(said.String(), "write the audit log") {
		t.Errorf("the error was not told: %q", said.String())
	}
	if err := os.Remove(path + ".1"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(read(t, l, sandbox.AuditQuery{})); got != "[1 2]" {
		t.Errorf("read %s", got)
	}
	if _, err := auditlog.Open(auditlog.Config{Path: os.DevNull}); err == nil {
		t.Error("a device was taken for the log")
	}
	if _, err := auditlog.Open(auditlog.Config{Path: filepath.Join(path, "x")}); err == nil {
		t.Error("a file in a file was opened")
	}
}

// Nothing in a record makes a second line.
func FuzzWrite(f *testing.F) {
	f.Add("a\nb", "\x1b]0;x\a", "\xff")
	f.Add("{\"kind\":\"login\"}\n", "\u2028", "\r")
	f.Fuzz(func(t *testing.T, user, command, reason string) {
		path := filepath.Join(t.TempDir(), "audit.log")
		l, err := auditlog.Open(auditlog.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		l.Write(sandbox.AuditRecord{Kind: sandbox.AuditLogin, User: user, Command: command, Reason: reason})
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 && len(user)+len(command)+len(reason) > 2000 {
			return // too long: nothing was written
		}
		if strings.Count(string(b), "\n") != 1 || !strings.HasSuffix(string(b), "\n") || !json.Valid(b) {
			t.Errorf("%q", b)
		}
	})
}
