package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
	"github.com/sandgate/sandgate/sandbox/guest/tree"
)

// fileOperation serves an operation on files and reports whether it is one.
func (s *session) fileOperation(st *yamux.Stream, req wire.Request) bool {
	switch req.Op {
	case wire.OpStat:
		with(s, st, req, func(args wire.Stat) error {
			return answer(s, st, args.Path, args.User, "stat", func(_ context.Context, path string) (wire.Entry, error) {
				return entryAt(path, !args.NoFollow)
			})
		})
	case wire.OpMkdir:
		with(s, st, req, func(args wire.Mkdir) error {
			return answer(s, st, args.Path, args.User, "make directory", func(_ context.Context, path string) (wire.Made, error) {
				return mkdir(path, args)
			})
		})
	case wire.OpRemove:
		with(s, st, req, func(args wire.Remove) error {
			return answer(s, st, args.Path, args.User, "remove", func(ctx context.Context, path string) (wire.Removed, error) {
				return remove(ctx, path, args)
			})
		})
	case wire.OpRename:
		with(s, st, req, func(args wire.Rename) error {
			to, err := s.agent.filePath(args.To)
			if err != nil {
				return err
			}
			return answer(s, st, args.From, args.User, "rename", func(_ context.Context, from string) (any, error) {
				if err := os.Rename(from, to); err != nil {
					return nil, &os.PathError{Op: "rename", Path: from + " to " + to, Err: err}
				}
				return nil, nil
			})
		})
	case wire.OpChmod:
		with(s, st, req, func(args wire.Chmod) error {
			if args.Mode > wire.MaxMode {
				return fault.InvalidField("mode", "has bits beyond 07777")
			}
			return answer(s, st, args.Path, args.User, "change the mode of", func(_ context.Context, path string) (any, error) {
				return nil, unix.Chmod(path, args.Mode)
			})
		})
	case wire.OpListFiles:
		with(s, st, req, func(args wire.ListFiles) error { return s.listFiles(st, args) })
	case wire.OpPack:
		with(s, st, req, func(args wire.Pack) error { return s.pack(st, args) })
	case wire.OpUnpack:
		with(s, st, req, func(args wire.Unpack) error { return s.unpack(st, args) })
	default:
		return false
	}
	return true
}

// answer serves an operation that consists of a request and an answer. The
// context of do ends when the host leaves.
func answer[R any](s *session, st *yamux.Stream, path wire.Path, user, doing string, do func(ctx context.Context, path string) (R, error)) error {
	full, err := s.agent.filePath(path)
	if err != nil {
		return err
	}
	as, err := s.agent.identity(user)
	if err != nil {
		return err
	}
	ctx, left := whileThere(st)
	var result R
	err = as(func() (err error) {
		result, err = do(ctx, full)
		return err
	})
	if err != nil {
		s.reply(st, nil, pathError(err, doing, full))
	} else {
		s.reply(st, result, nil)
	}
	<-left
	return nil
}

// pathError is fileError for the path that the error itself names, if it does.
func pathError(err error, doing, path string) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		path = pe.Path
	}
	return fileError(err, doing, path)
}

// whileThere returns a context that ends when the host leaves the stream, on
// which it has nothing more to say, and a channel that is closed then.
func whileThere(st *yamux.Stream) (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	left := watch(st)
	go func() { // ends with the stream
		<-left
		cancel()
	}()
	return ctx, left
}

// entryAt describes one file.
func entryAt(path string, follow bool) (wire.Entry, error) {
	var st unix.Stat_t
	var err error
	if follow {
		err = unix.Stat(path, &st)
	} else {
		err = unix.Lstat(path, &st)
	}
	if err != nil {
		return wire.Entry{}, err
	}
	e := entryOf(path, &st)
	if e.Type == wire.TypeLink {
		target, err := os.Readlink(path)
		if err != nil {
			return wire.Entry{}, err
		}
		e.Target = wire.Path(target)
	}
	return e, nil
}

func entryOf(path string, st *unix.Stat_t) wire.Entry {
	sec, nsec := st.Mtim.Unix()
	e := wire.Entry{
		Path: wire.Path(path), Type: wire.TypeOther, Mode: st.Mode & wire.MaxMode, Modified: nanoseconds(sec, nsec),
		UID: st.Uid, GID: st.Gid,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type, e.Size = wire.TypeFile, min(max(st.Size, 0), wire.MaxFileSize)
	case unix.S_IFDIR:
		e.Type = wire.TypeDir
	case unix.S_IFLNK:
		e.Type = wire.TypeLink
	case unix.S_IFIFO:
		e.Type = wire.TypePipe
	case unix.S_IFSOCK:
		e.Type = wire.TypeSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		e.Type = wire.TypeDevice
	}
	return e
}

// nanoseconds is a time, or the nearest that fits: a file may have any.
func nanoseconds(sec, nsec int64) int64 {
	const most = 1<<63/1_000_000_000 - 1
	return min(max(sec, -most), most)*1_000_000_000 + nsec
}

func mkdir(path string, args wire.Mkdir) (wire.Made, error) {
	made := wire.Made{Dir: wire.Path(path)}
	if args.Mode > wire.MaxMode {
		return made, fault.InvalidField("mode", "has bits beyond 07777")
	}
	mode := args.Mode
	if mode == 0 {
		mode = 0o755
	}
	var err error
	if args.Parents {
		made.Created, err = mkdirAll(path, fs.FileMode(mode&0o777))
	} else if err = os.Mkdir(path, fs.FileMode(mode&0o777)); err == nil {
		made.Created = 1
	}
	if err == nil && made.Created > 0 {
		err = unix.Chmod(path, mode) // the mask has not the last word
	}
	return made, err
}

func remove(ctx context.Context, path string, args wire.Remove) (wire.Removed, error) {
	var err error
	switch {
	case path == "/":
		return wire.Removed{}, fault.InvalidField("path", "the root directory cannot be removed; delete the sandbox instead")
	case !args.Dir:
		err = unix.Unlink(path)
	case args.Recursive:
		err = tree.Remove(ctx, path)
	default:
		err = unix.Rmdir(path)
	}
	// That nothing is there is no error; a way that leads through a file is.
	if errors.Is(err, fs.ErrNotExist) {
		return wire.Removed{}, nil
	}
	if !args.Dir && errors.Is(err, syscall.EPERM) && isDir(path) { // what POSIX has them say
		err = syscall.EISDIR
	}
	return wire.Removed{Found: err == nil}, err
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
