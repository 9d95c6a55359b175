package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// WriteFiles writes files into a sandbox, one after the other.
func (c *Client) WriteFiles(ctx context.Context, ref string, r FilesRequest) (WrittenFiles, error) {
	return one[WrittenFiles](ctx, c, http.MethodPost, "/fs/%s", "sandbox", ref, nil, r)
}

// PutOptions say how PutFile writes.
type PutOptions struct {
	Mode   string // octal; default: that of a file that is replaced, or 0644
	Strict bool   // directories that are missing are an error
}

// PutFile writes a file of any size into a sandbox: whole, or not at all.
func (c *Client) PutFile(ctx context.Context, ref, path string, o PutOptions, content io.Reader) (WrittenFiles, error) {
	q := url.Values{"path": {path}}
	set(q, "mode", o.Mode)
	if o.Strict {
		q.Set("strict", "true")
	}
	p, err := pathOf("/v1/sandboxes/%s/file", "sandbox", ref)
	if err != nil {
		return WrittenFiles{}, err
	}
	return send[WrittenFiles](ctx, c, http.MethodPut, p, q, content)
}

// ReadFile copies a file of a sandbox to w. An error of w comes back as it is.
func (c *Client) ReadFile(ctx context.Context, ref, path string, w io.Writer) error {
	p, err := pathOf("/fs/%s", "sandbox", ref)
	if err != nil {
		return err
	}
	return c.receive(ctx, p, url.Values{"path": {path}}, w)
}

// ListFilesOptions say what ListFiles lists.
type ListFilesOptions struct {
	Recursive bool
	Limit     int // default 10,000, at most 50,000
}

// ListFiles lists a directory of a sandbox; an empty path is the workspace.
func (c *Client) ListFiles(ctx context.Context, ref, path string, o ListFilesOptions) (FileList, error) {
	q := url.Values{}
	set(q, "path", path)
	if o.Recursive {
		q.Set("recursive", "true")
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return one[FileList](ctx, c, http.MethodGet, "/fs/list/%s", "sandbox", ref, q, nil)
}

// StatFile describes one file of a sandbox; links are followed.
func (c *Client) StatFile(ctx context.Context, ref, path string) (FileInfo, error) {
	q := url.Values{}
	set(q, "path", path)
	return one[FileInfo](ctx, c, http.MethodGet, "/v1/sandboxes/%s/stat", "sandbox", ref, q, nil)
}

// Mkdir makes a directory in a sandbox, with those above it when parents is
// set, and returns those it made.
func (c *Client) Mkdir(ctx context.Context, ref, path string, parents bool) ([]string, error) {
	out, err := one[MadeDirs](ctx, c, http.MethodPost, "/fs/mkdir/%s", "sandbox", ref, nil, PathRequest{Path: path, Recursive: parents})
	return out.DirectoriesCreated, err
}

// RemoveFile removes what is no directory, and reports whether there was
// anything.
func (c *Client) RemoveFile(ctx context.Context, ref, path string) (bool, error) {
	out, err := one[Removed](ctx, c, http.MethodPost, "/fs/rm/%s", "sandbox", ref, nil, PathRequest{Path: path})
	return out.Found, err
}

// RemoveDir removes a directory, when recursive is set with all that is in it,
// and reports whether there was one.
func (c *Client) RemoveDir(ctx context.Context, ref, path string, recursive bool) (bool, error) {
	out, err := one[Removed](ctx, c, http.MethodPost, "/fs/rmdir/%s", "sandbox", ref, nil, PathRequest{Path: path, Recursive: recursive})
	return out.Found, err
}

// Rename moves a file or a directory; a file at to is replaced.
func (c *Client) Rename(ctx context.Context, ref, from, to string) error {
	return c.onPath(ctx, "/v1/sandboxes/%s/rename", ref, PathRequest{Path: from, To: to})
}

// Chmod sets the mode of a file, given in octal.
func (c *Client) Chmod(ctx context.Context, ref, path, mode string) error {
	return c.onPath(ctx, "/v1/sandboxes/%s/chmod", ref, PathRequest{Path: path, Mode: mode})
}

func (c *Client) onPath(ctx context.Context, format, ref string, r PathRequest) error {
	path, err := pathOf(format, "sandbox", ref)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, path, nil, r, nil, nil)
}

// Download copies an archive ("tar.gz", "tar", "zip") of a directory or a file
// of a sandbox to w; an empty path is the workspace.
func (c *Client) Download(ctx context.Context, ref, path, format string, w io.Writer) error {
	q := url.Values{}
	set(q, "path", path)
	set(q, "format", format)
	p, err := pathOf("/fs/download/%s", "sandbox", ref)
	if err != nil {
		return err
	}
	return c.receive(ctx, p, q, w)
}

// Upload unpacks an archive into a directory of a sandbox. An empty format is
// told by the first bytes, an empty path is the workspace.
func (c *Client) Upload(ctx context.Context, ref, path, format string, archive io.Reader) (Unpacked, error) {
	q := url.Values{}
	set(q, "path", path)
	set(q, "format", format)
	p, err := pathOf("/fs/upload/%s", "sandbox", ref)
	if err != nil {
		return Unpacked{}, err
	}
	return send[Unpacked](ctx, c, http.MethodPost, p, q, archive)
}

// receive copies the bytes that answer a request to w.
func (c *Client) receive(ctx context.Context, path string, q url.Values, w io.Writer) error {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	resp, err := c.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out := &sink{w: w}
	_, err = io.Copy(out, resp.Body)
	switch {
	case err == nil:
		return nil
	case out.err != nil:
		return out.err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return c.lost(err)
}

// send sends content of any length and decodes the answer. An error of content
// comes back as it is.
func send[T any](ctx context.Context, c *Client, method, path string, q url.Values, content io.Reader) (T, error) {
	var out T
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	from := &source{r: content, err: make(chan error, 1)}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, io.NopCloser(from))
	if err != nil {
		return out, c.broken(ctx, err)
	}
	req.ContentLength = -1
	req.Header.Set("Content-Type", "application/octet-stream")
	err = c.do(req, &out, nil)
	if failed := from.failure(); err != nil && failed != nil {
		return out, failed
	}
	return out, err
}

// source remembers the error of a reader.
type source struct {
	r   io.Reader
	err chan error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		select {
		case s.err <- err:
		default:
		}
	}
	return n, err
}

func (s *source) failure() error {
	select {
	case err := <-s.err:
		return err
	default:
		return nil
	}
}
