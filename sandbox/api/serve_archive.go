package api

import (
	"io"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// copyBuffer is how much of a file is moved at once: each piece is sent on.
const copyBuffer = 256 << 10

// copyOut copies r into an answer.
func copyOut(w *raw, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, copyBuffer))
}

// mediaTypes is what archives are on the wire.
var mediaTypes = map[guest.Format]string{guest.Tar: "application/x-tar", guest.TarGz: "application/gzip", guest.Zip: "application/zip"}

// format reads the format of an archive.
func (q query) format(def guest.Format) (guest.Format, error) {
	v := q.Get("format")
	if v == "" {
		return def, nil
	}
	if f := guest.Format(v); f.Valid() {
		return f, nil
	}
	return "", fault.InvalidField("format", "%q is not a format: use tar.gz, tar or zip", clip(v))
}

// download sends an archive of a directory, or a file, of a sandbox.
func (s *server) download(r *request) (any, error) {
	q := query{r.URL.Query()}
	f, err := q.format(guest.TarGz)
	if err != nil {
		return nil, err
	}
	out := s.rawAnswer(r.w, r.Request, mediaTypes[f])
	_, err = r.ops.Download(r.Context(), r.PathValue("id"), q.Get("path"), f, q.Get("user"), out)
	return s.streamed(out, err)
}

// streamed ends an answer that an operation has written. One that has failed
// before it wrote anything fails in order.
func (s *server) streamed(out *raw, err error) (any, error) {
	if err != nil && !out.started {
		return nil, err
	}
	out.begin()
	out.end(err)
	return nil, errStreamed
}

// upload unpacks the body into a directory of a sandbox.
func (s *server) upload(r *request) (any, error) {
	q := query{r.URL.Query()}
	f, err := q.format("")
	if err != nil {
		return nil, err
	}
	body := openBody(r.w, r.Request)
	defer body.leave()
	done, err := r.ops.Upload(r.Context(), r.PathValue("id"), q.Get("path"), guest.UploadOptions{Format: f, User: q.Get("user")}, body)
	if err != nil {
		return nil, err
	}
	return Unpacked{Files: done.Files + done.Links, Directories: done.Dirs, Bytes: done.Bytes, Skipped: done.Skipped}, nil
}
