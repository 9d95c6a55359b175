package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// listFiles sends what is in a directory. It holds one frame of it at a time.
func (s *session) listFiles(st *yamux.Stream, args wire.ListFiles) error {
	path, err := s.agent.filePath(args.Path)
	if err != nil {
		return err
	}
	if args.Depth < 1 || args.Limit < 0 {
		return fault.InvalidField("depth", "must be at least 1, and the limit not negative")
	}
	as, err := s.agent.identity(args.User)
	if err != nil {
		return err
	}
	var dir *os.File
	var root wire.Entry
	err = as(func() (err error) {
		if root, err = entryAt(path, true); err == nil {
			dir, err = tree.OpenDir(path)
		}
		return err
	})
	if err != nil {
		return fileError(err, "list", path)
	}
	if !s.reply(st, root, nil) {
		dir.Close()
		return nil
	}
	ctx, left := whileThere(st)
	l := &listing{frames: wire.NewFrameWriter(st), limit: args.Limit}
	err = as(func() error { return l.run(ctx, dir, args.Depth) })
	if err != nil {
		err = fileError(err, "list", path)
	}
	conclude(l.frames, l.end, err)
	<-left
	return nil
}

// listing is a listing under way.
type listing struct {
	frames *wire.FrameWriter
	batch  []wire.Entry
	bytes  int // of the names in it
	sent   int64
	limit  int64
	end    wire.Listed
}

// batchBytes bounds the names in a frame: in JSON a byte may become six.
const batchBytes = 16 << 10

var errLimit = errors.New("the limit is reached")

func (l *listing) run(ctx context.Context, dir *os.File, depth int) error {
	err := tree.Walk(ctx, dir, depth, l.add, func(string, error) { l.end.Skipped++ })
	if errors.Is(err, errLimit) {
		l.end.More, err = true, nil
	}
	if err != nil {
		return err
	}
	return l.flush()
}

func (l *listing) add(n *tree.Node) (bool, error) {
	if l.limit > 0 && l.sent == l.limit {
		return false, errLimit
	}
	l.sent++
	e := entryOf(n.Path, &n.Stat)
	if n.Link() {
		if target, err := n.Target(); err == nil { // gone, or longer than can be
			e.Target = wire.Path(target)
		}
	}
	l.batch = append(l.batch, e)
	if l.bytes += len(e.Path) + len(e.Target); len(l.batch) == wire.MaxEntries || l.bytes > batchBytes {
		return true, l.flush()
	}
	return true, nil
}

func (l *listing) flush() error {
	if len(l.batch) == 0 {
		return nil
	}
	body, err := json.Marshal(l.batch)
	if err != nil {
		return err
	}
	l.batch, l.bytes = l.batch[:0], 0
	return l.frames.Fact(wire.KindEntries, body)
}
