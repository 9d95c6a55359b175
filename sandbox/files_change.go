package sandbox

import (
	"context"
	"io"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// Mkdir makes a directory.
func (a *Actor) Mkdir(ctx context.Context, ref, path string, o guest.MkdirOptions) (made []string, err error) {
	err = a.onFiles(ctx, "Mkdir", ref, []string{path}, func(conn *guest.Conn, _ func()) (err error) {
		made, err = conn.Mkdir(ctx, path, o)
		return err
	})
	return made, err
}

// RemoveFile removes what is no directory.
func (a *Actor) RemoveFile(ctx context.Context, ref, path, user string) (found bool, err error) {
	err = a.onFiles(ctx, "RemoveFile", ref, []string{path}, func(conn *guest.Conn, _ func()) (err error) {
		found, err = conn.RemoveFile(ctx, path, user)
		return err
	})
	return found, err
}

// RemoveDir removes a directory.
func (a *Actor) RemoveDir(ctx context.Context, ref, path string, o guest.RemoveDirOptions) (found bool, err error) {
	err = a.onFiles(ctx, "RemoveDir", ref, []string{path}, func(conn *guest.Conn, _ func()) (err error) {
		found, err = conn.RemoveDir(ctx, path, o)
		return err
	})
	return found, err
}

// Rename moves a file or directory.
func (a *Actor) Rename(ctx context.Context, ref, from, to, user string) error {
	return a.onFiles(ctx, "Rename", ref, []string{from, to}, func(conn *guest.Conn, _ func()) error {
		return conn.Rename(ctx, from, to, user)
	})
}

// Chmod sets a file's mode.
func (a *Actor) Chmod(ctx context.Context, ref, path string, mode uint32, user string) error {
	return a.onFiles(ctx, "Chmod", ref, []string{path}, func(conn *guest.Conn, _ func()) error {
		return conn.Chmod(ctx, path, mode, user)
	})
}

// Download packs a directory or a file.
func (a *Actor) Download(ctx context.Context, ref, path string, f guest.Format, user string, w io.Writer) (done guest.Archived, err error) {
	err = a.onFiles(ctx, "Download", ref, []string{path}, func(conn *guest.Conn, touch func()) (err error) {
		done, err = conn.Download(ctx, orWorkspace(path), f, user, touchedWriter{w, touch})
		return err
	})
	return done, err
}

// touchedWriter counts writing as activity.
type touchedWriter struct {
	w     io.Writer
	touch func()
}

func (t touchedWriter) Write(b []byte) (int, error) {
	t.touch()
	return t.w.Write(b)
}

// Upload unpacks an archive.
func (a *Actor) Upload(ctx context.Context, ref, path string, o guest.UploadOptions, r io.Reader) (done guest.Archived, err error) {
	err = a.onFiles(ctx, "Upload", ref, []string{path}, func(conn *guest.Conn, touch func()) (err error) {
		done, err = conn.Upload(ctx, orWorkspace(path), o, &touchedReader{r, touch})
		return err
	})
	return done, err
}
