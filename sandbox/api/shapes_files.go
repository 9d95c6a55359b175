package api

import (
	"fmt"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// FilesRequest is the body of POST /fs/{id}.
type FilesRequest struct {
	Files  []File `json:"files"`
	Strict bool   `json:"strict,omitempty"` // directories that are missing are an error
}

// WrittenFiles answers it, and PUT /v1/sandboxes/{id}/file.
type WrittenFiles struct {
	FilesWritten       int      `json:"filesWritten"`
	BytesWritten       int64    `json:"bytesWritten"`
	DirectoriesCreated []string `json:"directoriesCreated"`
}

// PathRequest is the body of the POST requests below /fs: mkdir, rmdir, rm.
type PathRequest struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive,omitempty"` // mkdir: with those above; rmdir: with what is in it
	Mode      string `json:"mode,omitempty"`      // mkdir, chmod: octal
	To        string `json:"to,omitempty"`        // rename
}

// MadeDirs answers POST /fs/mkdir/{id}: the directories it made, outermost
// first.
type MadeDirs struct {
	DirectoriesCreated []string `json:"directoriesCreated"`
}

// Removed answers POST /fs/rm/{id} and /fs/rmdir/{id}.
type Removed struct {
	Found bool `json:"found"` // there was something to remove
}

// FileInfo describes a file of a sandbox. Path and LinkTarget were chosen
// inside of it: bytes that are no text are replaced.
type FileInfo struct {
	Path       string    `json:"path"` // relative to the listed directory; absolute when asked for alone
	Type       string    `json:"type"` // file, dir, link, pipe, socket, device or other
	Size       int64     `json:"size"`
	IsDir      bool      `json:"isDir"`
	IsSymlink  bool      `json:"isSymlink,omitempty"`
	LinkTarget string    `json:"linkTarget,omitempty"`
	Mode       string    `json:"mode"` // octal
	ModTime    time.Time `json:"modTime"`
	UID        uint32    `json:"uid"`
	GID        uint32    `json:"gid"`
}

// FileList answers GET /fs/list/{id}, sorted by path. More says that there is
// more than was asked for, Skipped how many directories could not be read.
type FileList struct {
	Files   []FileInfo `json:"files"`
	More    bool       `json:"more,omitempty"`
	Skipped int64      `json:"skipped,omitempty"`
}

// Unpacked answers POST /fs/upload/{id}.
type Unpacked struct {
	Files       int64 `json:"files"`
	Directories int64 `json:"directories"`
	Bytes       int64 `json:"bytes"`
	Skipped     int64 `json:"skipped,omitempty"` // devices and the like
}

func fileShape(f guest.FileInfo) FileInfo {
	return FileInfo{
		Path: f.Path, Type: string(f.Type), Size: f.Size, IsDir: f.Type == guest.TypeDir, IsSymlink: f.Type == guest.TypeLink,
		LinkTarget: f.Target, Mode: fmt.Sprintf("%04o", f.Mode), ModTime: f.Modified.UTC(), UID: f.UID, GID: f.GID,
	}
}
