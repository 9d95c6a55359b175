package sandbox

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/sandgate/sandgate/sandbox/asciicast"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Recordings returns a page of the recordings of a sandbox, or of all the actor
// may see.
func (a *Actor) Recordings(ctx context.Context, ref string, limit, offset int) ([]Recording, int, error) {
	f := RecordingFilter{Offset: offset}
	var err error
	if f.Limit, err = pageLimit(limit, offset); err != nil {
		return nil, 0, err
	}
	if ref != "" {
		s, err := a.resolve(ctx, ref, "Recordings")
		if err != nil {
			return nil, 0, err
		}
		f.SandboxID = s.ID
	} else {
		if err := a.allow("Recordings"); err != nil {
			return nil, 0, err
		}
		if a.who.ID == "" && !a.who.IsAdmin() {
			return nil, 0, nil
		}
		if f.Owner, f.Seen, err = a.seen(ctx); err != nil {
			return nil, 0, err
		}
	}
	list, total, err := a.e.cfg.Store.Recordings(ctx, f)
	for i := range list {
		list[i] = a.e.recordings.now(list[i])
	}
	return list, total, err
}

// Recording returns one recording.
func (a *Actor) Recording(ctx context.Context, id string) (Recording, error) {
	return a.recording(ctx, id, "Recording")
}

// recording finds a recording of a sandbox that the actor may see.
func (a *Actor) recording(ctx context.Context, id string, op operation) (Recording, error) {
	missing := fault.New(fault.NotFound, "no recording %q; `recording list` shows those there are", clip(id, 64)).About("recording")
	rec, err := a.e.cfg.Store.Recording(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return Recording{}, missing
	}
	if err != nil {
		return Recording{}, err
	}
	if err := a.inside(ctx, rec.SandboxID, op, missing); err != nil {
		return Recording{}, err
	}
	return a.e.recordings.now(rec), nil
}

// ReadRecording writes a recording to w.
func (a *Actor) ReadRecording(ctx context.Context, id string, format RecordingFormat, follow bool, w io.Writer) error {
	convert := map[RecordingFormat]func(io.Writer, io.Reader) error{
		AsciicastV2: asciicast.CopyV2, AsciicastV3: asciicast.ConvertV3, PlainText: asciicast.ConvertText,
	}[format]
	if convert == nil {
		return fault.InvalidField("format", "%q is not a format: use %s, %s or %s", clip(string(format), 32), AsciicastV2, AsciicastV3, PlainText)
	}
	rec, err := a.recording(ctx, id, "ReadRecording")
	if err != nil {
		return err
	}
	r, err := a.e.recordings.open(ctx, rec, follow)
	if err != nil {
		return err
	}
	defer r.file.Close()
	err = convert(w, r)
	if errors.Is(err, asciicast.ErrFormat) {
		return fault.Wrap(err, fault.Unavailable, "the recording %s is damaged", rec.ID).About("recording")
	}
	return err
}

// DeleteRecording removes a recording.
func (a *Actor) DeleteRecording(ctx context.Context, id string) (err error) {
	var rec Recording
	defer func() {
		a.changed("recording delete", AuditRecord{Target: id, Sandbox: rec.SandboxID, Owner: rec.Owner}, err)
	}()
	rec, err = a.recording(ctx, id, "DeleteRecording")
	if err != nil {
		return err
	}
	if !a.who.IsAdmin() {
		return fault.New(fault.Denied, "only admins delete recordings").About("recording")
	}
	if rec.EndedAt.IsZero() {
		return fault.New(fault.State, "recording %s is being made; end its session first: session kill %s %s", rec.ID, rec.SandboxID, rec.Session).About("recording")
	}
	if err := a.e.recordings.remove(ctx, rec.ID); err != nil {
		return err
	}
	a.e.recordings.count(-rec.Bytes)
	a.e.cfg.Log.Info("recording deleted", "recording", rec.ID, "sandbox", rec.SandboxID, "principal", a.who.ID)
	return nil
}

// recordingReader reads the file of a recording as far as it goes, and where it
// follows one that is being made, until that has ended.
type recordingReader struct {
	ctx  context.Context
	file *os.File
	tap  *recordingTap // nil: nobody makes it
	off  int64
}

func (r *recordings) open(ctx context.Context, rec Recording, follow bool) (*recordingReader, error) {
	out := &recordingReader{ctx: ctx}
	if follow {
		out.tap = r.tap(rec.ID)
	}
	var err error
	out.file, err = os.Open(r.path(rec.ID) + castSuffix)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.Wrap(err, fault.NotFound, "the file of recording %s is gone", rec.ID).About("recording")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the recording %s cannot be read", rec.ID).About("recording")
	}
	return out, nil
}

func (r *recordingReader) Read(p []byte) (int, error) {
	for {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		if r.tap == nil {
			n, err := r.file.ReadAt(p, r.off)
			r.off += int64(n)
			if n > 0 && errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
		size, _, closed, changed := r.tap.state()
		switch {
		case r.off < size:
			n, err := r.file.ReadAt(p[:min(int64(len(p)), size-r.off)], r.off)
			r.off += int64(n)
			return n, err
		case closed && r.tap.goesOn():
			return 0, fault.New(fault.Unavailable, "the server stops; the recording goes on when it is back").About("recording")
		case closed:
			return 0, io.EOF
		}
		select {
		case <-changed:
		case <-r.ctx.Done():
		}
	}
}
