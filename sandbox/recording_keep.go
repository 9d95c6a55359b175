package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/asciicast"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Recordings are kept for Config.RecordingsKeep, and when they are more than
// Config.RecordingsMax some go; see recording_trim.go. One that is being made
// stays; when nothing that is left may go, those miss what comes next.

// reserve counts n bytes that are about to be written for owner, or says why they may not.
func (r *recordings) reserve(owner string, n int64) error {
	if err := r.diskLeft(); err != nil {
		return err
	}
	if r.fits(n) {
		return nil
	}
	r.trim(r.e.ctx, owner, n)
	if r.fits(n) {
		return nil
	}
	return fault.New(fault.Exhausted, "the space for recordings (%s) is used up by those that are being made", FormatBytes(r.e.cfg.RecordingsMax))
}

// roomToBegin refuses a recording that would soon miss what comes.
func (r *recordings) roomToBegin(owner string) error {
	some := r.e.cfg.RecordingsMax / 20
	err := r.reserve(owner, some)
	if err == nil {
		r.count(-some)
	}
	return err
}

func (r *recordings) fits(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n > r.e.cfg.RecordingsMax {
		return false
	}
	r.used += n
	return true
}

func (r *recordings) count(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used += n
}

// diskLeft refuses what would use up what the server keeps free of its disk.
func (r *recordings) diskLeft() error {
	var st unix.Statfs_t
	if r.e.cfg.DiskFloor <= 0 {
		return nil
	}
	if err := unix.Statfs(r.e.cfg.RecordingsDir, &st); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the disk of the recordings cannot be looked at")
	}
	if int64(st.Bavail)*st.Bsize < r.e.cfg.DiskFloor {
		return fault.New(fault.Exhausted, "the disk of the recordings is nearly full")
	}
	return nil
}

// TrimRecordings removes the recordings that need not be kept any more. Run
// does so now and then.
func (e *Engine) TrimRecordings(ctx context.Context) {
	e.recordings.sweep(ctx)
	e.recordings.trim(ctx, "", 0)
}

// remove removes a recording: first the record, so that there is no record of
// what is gone.
func (r *recordings) remove(ctx context.Context, id string) error {
	if err := r.e.cfg.Store.DeleteRecording(ctx, id); err != nil {
		return err
	}
	if err := removeRecordingFile(r.path(id)); err != nil {
		r.e.cfg.Log.Warn("remove the file of a recording", "recording", id, "err", err) // the next start does
	}
	return nil
}

// recount counts what is on the disk.
func (r *recordings) recount() (used int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, err := os.ReadDir(r.e.cfg.RecordingsDir)
	if err != nil {
		return r.used
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && strings.HasSuffix(entry.Name(), castSuffix) {
			used += info.Size()
		}
	}
	r.used = used
	return used
}

// reconcile settles what an earlier server has left: recordings of sessions
// that have ended, and files that no record knows. Those of sessions that go on
// are gone on with by goOn.
func (r *recordings) reconcile(ctx context.Context) {
	r.sweep(ctx)
	entries, err := os.ReadDir(r.e.cfg.RecordingsDir)
	if err != nil {
		r.e.cfg.Log.Error("look for recordings", "err", err)
		return
	}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), castSuffix)
		if !ok || !strings.HasPrefix(id, prefixRecording+"_") {
			continue
		}
		if _, err := r.e.cfg.Store.Recording(ctx, id); !fault.Is(err, fault.NotFound) {
			continue
		}
		if err := removeRecordingFile(r.path(id)); err != nil {
			r.e.cfg.Log.Warn("remove a recording without a record", "recording", id, "err", err)
		}
	}
	r.recount()
}

// sweep ends the recordings that nobody makes, and whose sessions have ended.
func (r *recordings) sweep(ctx context.Context) {
	open, _, err := r.e.cfg.Store.Recordings(ctx, RecordingFilter{Open: true})
	if err != nil {
		r.e.cfg.Log.Error("list open recordings", "err", err)
		return
	}
	for _, rec := range open {
		if r.tap(rec.ID) != nil {
			continue
		}
		s, err := r.e.cfg.Store.Session(ctx, rec.SessionID)
		if err == nil && s.Status != SessionEnded || err != nil && !fault.Is(err, fault.NotFound) {
			continue
		}
		if r.e.cfg.Now().Sub(rec.CreatedAt) < storeTime && err != nil {
			continue // its session is about to be put on record
		}
		r.cut(ctx, rec)
	}
}

// cut ends a recording that somebody else has left in its middle.
func (r *recordings) cut(ctx context.Context, rec Recording) {
	size, last, err := r.cutFile(rec)
	if err != nil {
		r.e.cfg.Log.Warn("end a recording that was cut short", "recording", rec.ID, "err", err)
	}
	_, err = r.e.cfg.Store.UpdateRecording(ctx, rec.ID, func(rec *Recording) error {
		if !rec.EndedAt.IsZero() {
			return nil
		}
		rec.Bytes, rec.Duration, rec.EndedAt = size, last, rec.CreatedAt.Add(last)
		return nil
	})
	if err != nil {
		r.e.cfg.Log.Error("note the end of a recording", "recording", rec.ID, "err", err)
	}
}

func (r *recordings) cutFile(rec Recording) (size int64, last time.Duration, err error) {
	cast, err := os.OpenFile(r.path(rec.ID)+castSuffix, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer cast.Close()
	size, last, err = asciicast.TailOf(cast)
	if err != nil {
		return size, last, fmt.Errorf("find its end: %w", err)
	}
	f := &recordingFile{cast: cast, size: size}
	f.w = asciicast.Continue(f, last)
	f.w.Mark(last, "the recording was cut short here")
	if err := cast.Truncate(size); err != nil {
		return size, last, err
	}
	err = errors.Join(f.w.Flush(), cast.Sync(), removePlace(r.path(rec.ID)))
	return f.size, last, err
}

func removePlace(path string) error {
	if err := os.Remove(path + placeSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
