package api

import (
	"strings"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (s *server) createSnapshot(r *request) (any, error) {
	var body SnapshotRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	p, err := r.ops.CreateSnapshot(r.Context(), r.PathValue("id"), body.domain(r.URL.Query().Get("orgId")))
	if err != nil {
		return nil, err
	}
	return s.snapshotAnswer(r, p), nil
}

// snapshotAnswer is a snapshot with the address of its archive.
func (s *server) snapshotAnswer(r *request, p sandbox.Snapshot) Snapshot {
	out := snapshotShape(p)
	out.DownloadURL = s.signedURL(r, "/v1/snapshots/"+p.ID+"/archive")
	return out
}

func (s *server) snapshot(r *request) (any, error) {
	p, err := r.ops.Snapshot(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return s.snapshotAnswer(r, p), nil
}

// publicSnapshot answers for snapshots that everybody may use, and for no
// others, whoever asks.
func (s *server) publicSnapshot(r *request) (any, error) {
	ref := r.PathValue("id")
	p, err := r.ops.Snapshot(r.Context(), ref)
	if err == nil && !p.Public {
		err = fault.New(fault.NotFound, "no public snapshot %q", clip(ref)).About("snapshot")
	}
	if err != nil {
		return nil, err
	}
	return s.snapshotAnswer(r, p), nil
}

func (s *server) snapshots(r *request) (any, error) { return s.listSnapshots(r, false) }

func (s *server) publicSnapshots(r *request) (any, error) { return s.listSnapshots(r, true) }

func (s *server) listSnapshots(r *request, public bool) (any, error) {
	q := query{r.URL.Query()}
	f := sandbox.SnapshotFilter{Public: public, Tag: q.Get("tag"), Parent: q.Get("parent"), SortBy: q.Get("sort")}
	var err error
	if f.Limit, err = q.limit(100); err != nil {
		return nil, err
	}
	if f.Offset, err = q.number("offset", 0); err != nil {
		return nil, err
	}
	if f.Asc, err = q.ascending(false); err != nil {
		return nil, err
	}
	out := SnapshotList{Snapshots: []Snapshot{}}
	if ref := q.Get("sandboxId"); ref != "" {
		// The filter knows ids, people know names.
		sb, err := r.ops.Get(r.Context(), ref)
		if f.Sandbox = sb.ID; err != nil {
			if !fault.Is(err, fault.NotFound) || !sandbox.IsID(ref) {
				return nil, err
			}
			f.Sandbox = ref // its record is gone, snapshots of it need not be
		}
	}
	page, total, err := r.ops.Snapshots(r.Context(), f)
	if err != nil {
		return nil, err
	}
	out.Total = total
	for _, p := range page {
		out.Snapshots = append(out.Snapshots, s.snapshotAnswer(r, p))
	}
	return out, nil
}

func (s *server) tagSnapshot(r *request) (any, error) {
	var body TagRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	tag := sandbox.NoTag
	if body.Tag != nil && *body.Tag != "" {
		tag = *body.Tag
	}
	p, err := r.ops.TagSnapshot(r.Context(), r.PathValue("id"), tag)
	if err != nil {
		return nil, err
	}
	return s.snapshotAnswer(r, p), nil
}

func (s *server) deleteSnapshot(r *request) (any, error) {
	cascade, _, err := query{r.URL.Query()}.boolean("cascade")
	if err != nil {
		return nil, err
	}
	return nil, r.ops.DeleteSnapshot(r.Context(), r.PathValue("id"), cascade)
}

// lineage finds the snapshot by "snapshot", an id or a tag, or by "name" and
// "tag" as the published client writes them: the name has no meaning here, the
// tag alone finds it, and without one it is the newest of that name.
func (s *server) lineage(r *request) (any, error) {
	q := query{r.URL.Query()}
	limit, err := q.number("limit", 100)
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > 1000 {
		return nil, fault.InvalidField("limit", "must be 1 to 1000")
	}
	ref, name, tag := q.Get("snapshot"), q.Get("name"), q.Get("tag")
	if before, after, ok := strings.Cut(ref, ":"); ok {
		ref, name, tag = "", before, after
	}
	switch {
	case ref != "":
	case tag != "":
		ref = tag
	case name != "":
		if ref, err = newestNamed(r, name); err != nil {
			return nil, err
		}
	default:
		return nil, fault.InvalidField("snapshot", "is missing; give the id or the tag of a snapshot")
	}
	line, err := r.ops.Lineage(r.Context(), ref)
	if err != nil {
		return nil, err
	}
	if tag != "" && name != "" && line[0].Name != name {
		return nil, fault.New(fault.NotFound, "no snapshot %q", clip(name+":"+tag)).About("snapshot")
	}
	out := Lineage{Lineage: []Snapshot{}, Total: len(line)}
	for _, p := range line[:min(limit, len(line))] {
		out.Lineage = append(out.Lineage, snapshotShape(p))
	}
	return out, nil
}

// newestNamed is the id of the newest of the caller's snapshots of that name.
func newestNamed(r *request, name string) (string, error) {
	for offset := 0; ; {
		page, total, err := r.ops.Snapshots(r.Context(), sandbox.SnapshotFilter{Limit: 1000, Offset: offset})
		if err != nil {
			return "", err
		}
		for _, p := range page {
			if p.Name == name {
				return p.ID, nil
			}
		}
		if offset += len(page); len(page) == 0 || offset >= total {
			return "", fault.New(fault.NotFound, "no snapshot named %q", clip(name)).About("snapshot")
		}
	}
}

// exportSnapshot sends a snapshot as an archive.
func (s *server) exportSnapshot(r *request) (any, error) {
	out := s.rawAnswer(r.w, r.Request, "application/x-tar")
	return s.streamed(out, r.ops.ExportSnapshot(r.Context(), r.PathValue("id"), out))
}

// importSnapshot makes a snapshot of an archive, the body.
func (s *server) importSnapshot(r *request) (any, error) {
	q := query{r.URL.Query()}
	public, _, err := q.boolean("public")
	if err != nil {
		return nil, err
	}
	req := SnapshotRequest{Name: q.Get("name"), Description: q.Get("description"), Tag: q.Get("tag"), Public: public, ProjectID: q.Get("projectId")}
	body := openBody(r.w, r.Request)
	defer body.leave()
	p, err := r.ops.ImportSnapshot(r.Context(), body, req.domain(q.Get("orgId")))
	if err != nil {
		return nil, err
	}
	return s.snapshotAnswer(r, p), nil
}
