package netd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// record is what is kept of one sandbox over a death of netd.
type record struct {
	// Open allows everything public; Allow are the rules otherwise. What is
	// missing in a record allows nothing.
	Open  bool     `json:"open,omitempty"`
	Allow []string `json:"allow,omitempty"`
	// Foreign is the inode of a namespace that somebody else has made and we
	// have connected; zero when S is ours.
	Foreign uint64 `json:"foreign,omitempty"`
	// In and Out are bytes so far, as of the last writing.
	In  int64 `json:"in,omitempty"`
	Out int64 `json:"out,omitempty"`
}

// rules are what egress.Parse takes.
func (r record) rules() []string { return rules(r.Open, r.Allow) }

// rules turns the form that is written into that of egress.Parse, in which nil
// allows everything.
func rules(open bool, allow []string) []string {
	switch {
	case open:
		return nil
	case allow == nil:
		return []string{}
	}
	return allow
}

// folder is the state folder of a netd.
type folder string

func (d folder) socket() string     { return filepath.Join(string(d), "sock") }
func (d folder) lockFile() string   { return filepath.Join(string(d), "lock") }
func (d folder) logFile() string    { return filepath.Join(string(d), "log") }
func (d folder) namespaces() string { return filepath.Join(string(d), "ns") }
func (d folder) boxes() string      { return filepath.Join(string(d), "boxes") }

func (d folder) sandbox(id string) string { return filepath.Join(d.namespaces(), id+sandboxSuffix) }
func (d folder) router(id string) string  { return filepath.Join(d.namespaces(), id+routerSuffix) }
func (d folder) record(id string) string  { return filepath.Join(d.boxes(), id+".json") }
func (d folder) names(id string) string   { return filepath.Join(d.boxes(), id+".names") }

// prepare makes the folders.
func (d folder) prepare() error {
	for _, dir := range []string{string(d), d.namespaces(), d.boxes()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// writeRecord replaces the record of a sandbox; when it returns, it is on the
// disk.
func (d folder) writeRecord(id string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := d.record(id) + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, d.record(id))
	}
	if err == nil {
		err = syncDir(d.boxes())
	}
	if err != nil {
		os.Remove(tmp)
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (d folder) readRecord(id string) (record, error) {
	var r record
	b, err := os.ReadFile(d.record(id))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read record of %s: %w", id, err)
	}
	return r, nil
}

// dropRecord forgets a sandbox.
func (d folder) dropRecord(id string) error {
	var errs []error
	for _, path := range []string{d.names(id), d.record(id) + ".new", d.record(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// recorded lists the sandboxes that have a record.
func (d folder) recorded() ([]string, error) {
	entries, err := os.ReadDir(d.boxes())
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && driver.ValidID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
