package api

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// maxFiles bounds how many entries of a directory one answer has.
const maxFiles = 50_000

func (s *server) writeFiles(r *request) (any, error) {
	var body FilesRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	files, err := decodeFiles(body.Files)
	if err != nil {
		return nil, err
	}
	done, err := r.ops.WriteFiles(r.Context(), r.PathValue("id"), files, sandbox.WriteFilesOptions{User: r.URL.Query().Get("user"), Strict: body.Strict})
	if err != nil {
		return nil, err
	}
	return WrittenFiles{FilesWritten: done.Files, BytesWritten: done.Bytes, DirectoriesCreated: orEmpty(done.Directories)}, nil
}

// orEmpty is what JSON writes as a list.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// putFile writes one file of any length from the body.
func (s *server) putFile(r *request) (any, error) {
	q := query{r.URL.Query()}
	strict, _, err := q.boolean("strict")
	if err != nil {
		return nil, err
	}
	o := guest.WriteOptions{User: q.Get("user"), Parents: !strict}
	if o.Append, _, err = q.boolean("append"); err != nil {
		return nil, err
	}
	if o.Mode, err = octal("mode", q.Get("mode")); err != nil {
		return nil, err
	}
	path, err := q.path()
	if err != nil {
		return nil, err
	}
	body := openBody(r.w, r.Request)
	defer body.leave()
	if r.ContentLength >= 0 {
		o.Size = &r.ContentLength
	}
	made, err := r.ops.PutFile(r.Context(), r.PathValue("id"), path, o, body)
	if err != nil {
		return nil, err
	}
	return WrittenFiles{FilesWritten: 1, BytesWritten: body.read.Load(), DirectoriesCreated: orEmpty(made)}, nil
}

// path reads the path of a file, which must be given.
func (q query) path() (string, error) {
	if p := q.Get("path"); p != "" {
		return p, nil
	}
	return "", fault.InvalidField("path", "is missing")
}

// octal reads the mode of a file; empty is 0.
func octal(field, v string) (uint32, error) {
	if v == "" {
		return 0, nil
	}
	mode, err := strconv.ParseUint(v, 8, 12)
	if err != nil {
		return 0, fault.InvalidField(field, "%q is not a mode in octal, such as 0644", clip(v))
	}
	return uint32(mode), nil
}

// readFile sends a file, or a part of it.
func (s *server) readFile(r *request) (any, error) {
	q := query{r.URL.Query()}
	path, err := q.path()
	if err != nil {
		return nil, err
	}
	o := guest.ReadOptions{User: q.Get("user")}
	if o.Offset, err = q.position("offset"); err != nil {
		return nil, err
	}
	if o.Length, err = q.position("length"); err != nil {
		return nil, err
	}
	f, err := r.ops.OpenFile(r.Context(), r.PathValue("id"), path, o)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := s.rawAnswer(r.w, r.Request, "application/octet-stream")
	out.begin()
	_, err = copyOut(out, f)
	out.end(err)
	return nil, errStreamed
}

func (s *server) listFiles(r *request) (any, error) {
	q := query{r.URL.Query()}
	o := guest.ListOptions{User: q.Get("user")}
	var err error
	if o.Recursive, _, err = q.boolean("recursive"); err != nil {
		return nil, err
	}
	limit, err := q.number("limit", 10_000)
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > maxFiles {
		return nil, fault.InvalidField("limit", "must be 1 to %d", maxFiles)
	}
	o.Limit = int64(limit)
	out := FileList{Files: []FileInfo{}}
	l, err := r.ops.ListFiles(r.Context(), r.PathValue("id"), q.Get("path"), o, func(f guest.FileInfo) error {
		out.Files = append(out.Files, fileShape(f))
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.More, out.Skipped = l.More, l.Skipped
	slices.SortFunc(out.Files, func(a, b FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

func (s *server) statFile(r *request) (any, error) {
	q := query{r.URL.Query()}
	noFollow, _, err := q.boolean("noFollow")
	if err != nil {
		return nil, err
	}
	info, err := r.ops.Stat(r.Context(), r.PathValue("id"), q.Get("path"), guest.StatOptions{User: q.Get("user"), NoFollow: noFollow})
	if err != nil {
		return nil, err
	}
	return fileShape(info), nil
}

// pathBody reads the body of a request about one path.
func (r *request) pathBody() (b PathRequest, err error) {
	if err := decode(r.w, r.Request, &b); err != nil {
		return b, err
	}
	if b.Path == "" {
		return b, fault.InvalidField("path", "is missing")
	}
	return b, nil
}

func (s *server) mkdir(r *request) (any, error) {
	b, err := r.pathBody()
	if err != nil {
		return nil, err
	}
	o := guest.MkdirOptions{User: r.URL.Query().Get("user"), Parents: b.Recursive}
	if o.Mode, err = octal("mode", b.Mode); err != nil {
		return nil, err
	}
	made, err := r.ops.Mkdir(r.Context(), r.PathValue("id"), b.Path, o)
	if err != nil {
		return nil, err
	}
	return MadeDirs{DirectoriesCreated: orEmpty(made)}, nil
}

func (s *server) removeFile(r *request) (any, error) {
	b, err := r.pathBody()
	if err != nil {
		return nil, err
	}
	found, err := r.ops.RemoveFile(r.Context(), r.PathValue("id"), b.Path, r.URL.Query().Get("user"))
	if err != nil {
		return nil, err
	}
	return beside{data: Removed{found}, also: Removed{found}}, nil
}

func (s *server) removeDir(r *request) (any, error) {
	b, err := r.pathBody()
	if err != nil {
		return nil, err
	}
	found, err := r.ops.RemoveDir(r.Context(), r.PathValue("id"), b.Path, guest.RemoveDirOptions{User: r.URL.Query().Get("user"), Recursive: b.Recursive})
	if err != nil {
		return nil, err
	}
	return beside{data: Removed{found}, also: Removed{found}}, nil
}

func (s *server) rename(r *request) (any, error) {
	b, err := r.pathBody()
	if err != nil {
		return nil, err
	}
	if b.To == "" {
		return nil, fault.InvalidField("to", "is missing")
	}
	return nil, r.ops.Rename(r.Context(), r.PathValue("id"), b.Path, b.To, r.URL.Query().Get("user"))
}

func (s *server) chmod(r *request) (any, error) {
	b, err := r.pathBody()
	if err != nil {
		return nil, err
	}
	if b.Mode == "" {
		return nil, fault.InvalidField("mode", "is missing")
	}
	mode, err := octal("mode", b.Mode)
	if err != nil {
		return nil, err
	}
	return nil, r.ops.Chmod(r.Context(), r.PathValue("id"), b.Path, mode, r.URL.Query().Get("user"))
}
