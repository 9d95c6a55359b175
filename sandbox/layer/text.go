package layer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// MaxText is the size of a text that can be compared line by line.
const MaxText = 4 << 20

// TextDiff is the unified diff of two texts, empty when they are equal. Invalid
// when one is binary, Exhausted when one is larger than MaxText.
func TextDiff(a, b []byte, nameA, nameB string) (string, error) {
	for _, side := range []struct {
		name string
		text []byte
	}{{nameA, a}, {nameB, b}} {
		if len(side.text) > MaxText {
			return "", fault.New(fault.Exhausted, "%.200q is of %d bytes; texts of up to %d can be compared", side.name, len(side.text), MaxText)
		}
		if bytes.IndexByte(side.text, 0) >= 0 {
			return "", fault.New(fault.Invalid, "%.200q is binary; only texts can be compared line by line", side.name)
		}
	}
	return string(diff.Diff(oneLine(nameA), a, oneLine(nameB), b)), nil
}

// oneLine keeps a hostile name from adding lines to a diff.
func oneLine(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name)
}

// ReadFile returns a regular file of a stack over a base, which may be nil.
// NotFound when there is none, Invalid when it is none, Exhausted when it is
// larger than limit.
func ReadFile(ctx context.Context, s Stack, base Base, p string, limit int64) ([]byte, Entry, error) {
	missing := fault.New(fault.NotFound, "there is no file %.200q", p)
	clean := path.Join("/", p)
	for _, source := range s {
		e, hidden, err := find(ctx, source, clean)
		if err != nil {
			return nil, Entry{}, err
		}
		if e != nil && e.Type == Dir {
			return nil, *e, readable(e, limit)
		}
		if e != nil {
			content, err := contentIn(ctx, source, e, limit)
			return content, *e, err
		}
		if hidden {
			return nil, Entry{}, missing
		}
	}
	if base == nil {
		return nil, Entry{}, missing
	}
	e, ok, err := base.Entry(clean)
	if err != nil {
		return nil, Entry{}, failure(err, "read the file")
	}
	if !ok {
		return nil, Entry{}, missing
	}
	if err := readable(&e, limit); err != nil {
		return nil, e, err
	}
	f, err := base.Open(clean)
	if err != nil {
		return nil, e, failure(err, "read the file")
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		e.Size = int64(len(content))
		err = readable(&e, limit)
	}
	return content, e, failure(err, "read the file")
}

// find looks a path up in one layer: its entry, or whether the layer hides
// what lower ones have there.
func find(ctx context.Context, s Source, p string) (e *Entry, hidden bool, err error) {
	r, err := s.Open()
	if err != nil {
		return nil, false, failure(err, "read the layer")
	}
	defer r.Close()
	above := make(map[string]*Entry)
	err = scan(ctx, r, neutralForm, Limits{}, func(at *Entry, _ io.Reader) error {
		if at.Path == p || at.Path == "/" || strings.HasPrefix(p, at.Path+"/") {
			above[at.Path] = at
		}
		return nil
	})
	if err != nil {
		return nil, false, failure(err, "read the layer")
	}
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		if d := above[dir]; d != nil && (d.Deleted || d.Opaque || d.Type != Dir) {
			hidden = true
		}
		if dir == "/" {
			break
		}
	}
	if e = above[p]; e != nil && e.Deleted {
		return nil, true, nil
	}
	return e, hidden, nil
}

func readable(e *Entry, limit int64) error {
	if e.Type != File {
		return fault.New(fault.Invalid, "%.200q is no regular file", e.Path)
	}
	if e.Size > limit {
		return fault.New(fault.Exhausted, "%.200q is of more than %d bytes", e.Path, limit)
	}
	return nil
}

// contentIn reads the content of an entry of a layer.
func contentIn(ctx context.Context, s Source, e *Entry, limit int64) ([]byte, error) {
	if err := readable(e, limit); err != nil {
		return nil, err
	}
	r, err := s.Open()
	if err != nil {
		return nil, failure(err, "read the layer")
	}
	defer r.Close()
	at := e.Path
	if e.Same != "" {
		at = e.Same
	}
	var content []byte
	err = scan(ctx, r, neutralForm, Limits{}, func(found *Entry, src io.Reader) error {
		if found.Path != at || src == nil {
			return nil
		}
		var err error
		if content, err = io.ReadAll(io.LimitReader(src, limit)); err == nil {
			err = errFound
		}
		return err
	})
	if err != nil && !errors.Is(err, errFound) {
		return nil, failure(err, "read the layer")
	}
	return content, nil
}

// errFound ends the reading of an archive early.
var errFound = errors.New("found")
