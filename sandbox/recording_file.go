package sandbox

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sandgate/sandgate/sandbox/asciicast"
)

// recordingFile is the file of a recording that is made, and beside it a small
// one that says how much of the session's output the file holds. After a crash
// whatever is in the first and not accounted for in the second is cut off, and
// comes again from the guest: nothing is there twice and nothing is left out,
// as long as the guest still has it.
type recordingFile struct {
	cast, place *os.File
	w           *asciicast.Writer
	size        int64 // of the whole lines in cast
	offset      int64 // of the session's output, up to which w has it
}

const (
	castSuffix  = ".cast"
	placeSuffix = ".offset"
	// placeFormat has a fixed length, so that one write replaces another.
	placeFormat = "%020d %020d\n"
)

// createRecordingFile begins a recording.
func createRecordingFile(path string, h asciicast.Header) (*recordingFile, error) {
	f, err := openRecordingFile(path, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	f.w = asciicast.NewWriter(f, h)
	if err := f.flush(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// continueRecordingFile goes on with a recording that an earlier server has
// left.
func continueRecordingFile(path string) (*recordingFile, error) {
	f, err := openRecordingFile(path, 0)
	if err != nil {
		return nil, err
	}
	last, err := f.restore()
	if err != nil {
		f.close()
		return nil, err
	}
	f.w = asciicast.Continue(f, last)
	return f, nil
}

func openRecordingFile(path string, flags int) (*recordingFile, error) {
	cast, err := os.OpenFile(path+castSuffix, os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	place, err := os.OpenFile(path+placeSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		cast.Close()
		return nil, err
	}
	return &recordingFile{cast: cast, place: place}, nil
}

// restore finds out where the file ends, and cuts off what comes after it.
func (f *recordingFile) restore() (last time.Duration, err error) {
	info, err := f.cast.Stat()
	if err != nil {
		return 0, err
	}
	f.size = info.Size()
	note := make([]byte, len(fmt.Sprintf(placeFormat, 0, 0)))
	var offset, size int64
	if _, err := f.place.ReadAt(note, 0); err == nil {
		if _, err := fmt.Sscanf(string(note), placeFormat, &offset, &size); err == nil && offset >= 0 && size >= 0 {
			f.offset, f.size = offset, min(f.size, size)
		}
	}
	if f.size, last, err = asciicast.Tail(f.cast, f.size); err != nil {
		return 0, err
	}
	if f.size == 0 {
		return 0, errors.New("it has no beginning")
	}
	return last, f.cast.Truncate(f.size)
}

// Write adds whole lines; it is for the asciicast.Writer. A write that fails
// leaves the file as it was, where the disk lets it.
func (f *recordingFile) Write(p []byte) (int, error) {
	n, err := f.cast.WriteAt(p, f.size)
	if err != nil {
		_ = f.cast.Truncate(f.size) // readers leave out a torn line
		return 0, err
	}
	f.size += int64(n)
	return n, nil
}

// flush writes what is held back and notes how far it goes.
func (f *recordingFile) flush() error {
	if err := f.w.Flush(); err != nil {
		return err
	}
	_, err := f.place.WriteAt(fmt.Appendf(nil, placeFormat, f.offset-int64(f.w.Held()), f.size), 0)
	return err
}

// sync makes what was flushed durable.
func (f *recordingFile) sync() error { return errors.Join(f.cast.Sync(), f.place.Sync()) }

func (f *recordingFile) close() {
	f.cast.Close()
	f.place.Close()
}

// removeRecordingFile removes the files of a recording.
func removeRecordingFile(path string) error {
	var failed error
	for _, suffix := range []string{placeSuffix, castSuffix} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = err
		}
	}
	return failed
}
