package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// FileOperations are what an Actor can do with the files of a sandbox, beside
// ReadFile and WriteFile. All of it happens inside the sandbox: no link and no
// ".." leads out of it. A relative path resolves against the workspace, and an
// empty one is the workspace. User, where there is one, is a user of the
// sandbox who acts instead of its root.
//
// A suspended or paused sandbox is started first; what moves counts as
// activity. What is told of files was chosen inside of the sandbox: see
// guest.FileInfo. Unsupported is for a sandbox whose guest is too old.
type FileOperations interface {
	// Stat describes one file. NotFound.
	Stat(ctx context.Context, ref, path string, o guest.StatOptions) (guest.FileInfo, error)
	// ListFiles calls each for what is in a directory, as it comes and in no
	// order, parents first. NotFound; Invalid for what is no directory.
	ListFiles(ctx context.Context, ref, path string, o guest.ListOptions, each func(guest.FileInfo) error) (guest.Listing, error)
	// OpenFile opens a regular file, or a part of it; the caller closes it.
	OpenFile(ctx context.Context, ref, path string, o guest.ReadOptions) (FileReader, error)
	// PutFile writes a file from content and returns the directories it made.
	// The file appears whole or not at all.
	PutFile(ctx context.Context, ref, path string, o guest.WriteOptions, content io.Reader) ([]string, error)
	// WriteFiles writes files one after the other and ends at the first error;
	// what was written before it is in the result.
	WriteFiles(ctx context.Context, ref string, files []File, o WriteFilesOptions) (WrittenFiles, error)
	// Mkdir makes a directory and returns those it made. Exists, NotFound.
	Mkdir(ctx context.Context, ref, path string, o guest.MkdirOptions) ([]string, error)
	// RemoveFile removes what is no directory and reports whether there was
	// anything. Invalid for a directory.
	RemoveFile(ctx context.Context, ref, path, user string) (found bool, err error)
	// RemoveDir removes a directory and reports whether there was one. State
	// when it is not empty and the removal not recursive.
	RemoveDir(ctx context.Context, ref, path string, o guest.RemoveDirOptions) (found bool, err error)
	// Rename moves a file or directory; a file at to is replaced.
	Rename(ctx context.Context, ref, from, to, user string) error
	// Chmod sets the lowest twelve bits of a file's mode.
	Chmod(ctx context.Context, ref, path string, mode uint32, user string) error
	// Download writes an archive of a directory or a file to w.
	Download(ctx context.Context, ref, path string, f guest.Format, user string, w io.Writer) (guest.Archived, error)
	// Upload unpacks an archive into a directory; see guest.Conn.Upload for
	// what is refused. The result counts also beside an error.
	Upload(ctx context.Context, ref, path string, o guest.UploadOptions, r io.Reader) (guest.Archived, error)
}

var _ FileOperations = (*Actor)(nil)

// FileReader is an open file of a sandbox.
type FileReader interface {
	io.ReadCloser
	Info() guest.FileInfo
}

// WriteFilesOptions say how WriteFiles writes.
type WriteFilesOptions struct {
	User   string // writes; root when empty
	Strict bool   // directories that are missing are an error
}

// WrittenFiles is what WriteFiles has done.
type WrittenFiles struct {
	Files       int
	Bytes       int64
	Directories []string // made for them
}

// WriteFile writes a file inside the sandbox.
func (a *Actor) WriteFile(ctx context.Context, ref string, f File) error {
	_, err := a.WriteFiles(ctx, ref, []File{f}, WriteFilesOptions{})
	return err
}

// ReadFile opens a file inside the sandbox.
func (a *Actor) ReadFile(ctx context.Context, ref, path string) (io.ReadCloser, error) {
	return a.OpenFile(ctx, ref, path, guest.ReadOptions{})
}

// onFiles runs an operation on the files of a sandbox.
func (a *Actor) onFiles(ctx context.Context, op operation, ref string, paths []string, do func(conn *guest.Conn, touch func()) error) error {
	for _, p := range paths {
		if err := validatePath(p); err != nil {
			return err
		}
	}
	s, err := a.ready(ctx, ref, op)
	if err != nil {
		return err
	}
	touch := a.e.toucher(s.ID)
	touch()
	conn, err := a.e.conns.get(ctx, s.ID)
	if err == nil {
		err = do(conn, touch)
	}
	touch()
	if f, ok := err.(*fault.Error); ok && f.Kind == "" && !errors.Is(err, guest.ErrLost) {
		err = f.About("file")
	}
	return a.e.explain(ctx, s.ID, err)
}

// maxPath is what a path may have, one byte less than the kernel's PATH_MAX.
const maxPath = 4095

func validatePath(path string) error {
	switch {
	case len(path) > maxPath:
		return fault.InvalidField("path", "is %d bytes long; at most %d are allowed", len(path), maxPath)
	case strings.ContainsRune(path, 0):
		return fault.InvalidField("path", "contains a zero byte")
	}
	return nil
}

// orWorkspace is the workspace for the empty path.
func orWorkspace(path string) string {
	if path == "" {
		return "."
	}
	return path
}

// Stat describes one file.
func (a *Actor) Stat(ctx context.Context, ref, path string, o guest.StatOptions) (info guest.FileInfo, err error) {
	err = a.onFiles(ctx, "Stat", ref, []string{path}, func(conn *guest.Conn, _ func()) (err error) {
		info, err = conn.Stat(ctx, orWorkspace(path), o)
		return err
	})
	return info, err
}

// ListFiles lists a directory.
func (a *Actor) ListFiles(ctx context.Context, ref, path string, o guest.ListOptions, each func(guest.FileInfo) error) (l guest.Listing, err error) {
	err = a.onFiles(ctx, "ListFiles", ref, []string{path}, func(conn *guest.Conn, touch func()) (err error) {
		l, err = conn.ListFiles(ctx, orWorkspace(path), o, func(f guest.FileInfo) error {
			touch()
			return each(f)
		})
		return err
	})
	return l, err
}

// OpenFile opens a regular file.
func (a *Actor) OpenFile(ctx context.Context, ref, path string, o guest.ReadOptions) (r FileReader, err error) {
	err = a.onFiles(ctx, "OpenFile", ref, []string{path}, func(conn *guest.Conn, touch func()) error {
		f, err := conn.OpenFile(ctx, path, o)
		if fault.Is(err, fault.NotFound) {
			return fault.Wrap(err, fault.NotFound, "no file %q in the sandbox", clip(path, 128))
		}
		if err == nil {
			r = &openFile{File: f, path: path, touch: touch}
		}
		return err
	})
	return r, err
}

// openFile counts what is read of it as activity.
type openFile struct {
	*guest.File
	path  string
	touch func()
}

func (f *openFile) Read(b []byte) (int, error) {
	f.touch()
	return f.File.Read(b)
}

func (f *openFile) Info() guest.FileInfo {
	return guest.FileInfo{Path: f.path, Type: guest.TypeFile, Mode: uint32(f.Mode()), Size: f.Size(), Modified: f.Modified()}
}

// PutFile writes a file.
func (a *Actor) PutFile(ctx context.Context, ref, path string, o guest.WriteOptions, content io.Reader) (made []string, err error) {
	err = a.onFiles(ctx, "PutFile", ref, []string{path}, func(conn *guest.Conn, touch func()) (err error) {
		made, err = conn.PutFile(ctx, path, o, &touchedReader{content, touch})
		return err
	})
	return made, err
}

// WriteFiles writes files.
func (a *Actor) WriteFiles(ctx context.Context, ref string, files []File, o WriteFilesOptions) (done WrittenFiles, err error) {
	if err := validateFiles(files); err != nil {
		return done, err
	}
	err = a.onFiles(ctx, "WriteFiles", ref, nil, func(conn *guest.Conn, touch func()) error {
		for _, f := range files {
			touch()
			made, err := conn.PutFile(ctx, f.Path, guest.WriteOptions{User: o.User, Mode: f.Mode, Parents: !o.Strict}, bytes.NewReader(f.Content))
			if fault.Is(err, fault.Unsupported) && o == (WriteFilesOptions{}) { // what an older guest can do as well
				err = writeFiles(ctx, conn, []File{f})
			}
			if err != nil {
				return err
			}
			done.Files++
			done.Bytes += int64(len(f.Content))
			done.Directories = append(done.Directories, made...)
		}
		return nil
	})
	return done, err
}

// touchedReader counts reading as activity.
type touchedReader struct {
	r     io.Reader
	touch func()
}

func (t *touchedReader) Read(b []byte) (int, error) {
	t.touch()
	return t.r.Read(b)
}
