package wire

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// The operations on files, all since version 2 of the protocol. OpRead and
// OpWrite are older; what only version 2 knows of them is said at their fields.
const (
	OpStat      Op = "stat"       // Stat → Entry
	OpListFiles Op = "list-files" // ListFiles → Entry of the directory, then frames
	OpMkdir     Op = "mkdir"      // Mkdir → Made
	OpRemove    Op = "remove"     // Remove → Removed
	OpRename    Op = "rename"     // Rename → nothing
	OpChmod     Op = "chmod"      // Chmod → nothing
	OpPack      Op = "pack"       // Pack → nothing, then frames
	OpUnpack    Op = "unpack"     // Unpack → nothing, then frames
)

// Bounds of the operations on files.
const (
	MaxName    = 255 // bytes of one component of a path
	MaxEntries = 256 // entries in one frame
	MaxMode    = 07777
)

// Path is a path or the name of a file, as the sandbox has it: bytes, which
// need not be UTF-8. In JSON it is a string where it is UTF-8, and otherwise an
// array of one string, its bytes in base64: a string would lose them.
type Path string

// MarshalJSON implements json.Marshaler.
func (p Path) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(p)) {
		return json.Marshal(string(p))
	}
	return json.Marshal([1]string{base64.StdEncoding.EncodeToString([]byte(p))})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Path) UnmarshalJSON(raw []byte) error {
	if len(raw) == 0 || raw[0] != '[' {
		return json.Unmarshal(raw, (*string)(p))
	}
	var coded []string
	if err := json.Unmarshal(raw, &coded); err != nil {
		return err
	}
	if len(coded) != 1 {
		return Violation("a path of %d parts", len(coded))
	}
	b, err := base64.StdEncoding.DecodeString(coded[0])
	if err != nil {
		return Violation("a path that is not base64")
	}
	*p = Path(b)
	return nil
}

// Whole reports whether p can be the path of a file.
func (p Path) Whole() bool {
	return p != "" && len(p) < MaxPath && !strings.ContainsRune(string(p), 0)
}

// Below reports whether p names something below a directory and nothing else:
// no part of it is empty, "." or "..", or longer than a name may be.
func (p Path) Below() bool {
	if !p.Whole() {
		return false
	}
	for part := range strings.SplitSeq(string(p), "/") {
		if part == "" || part == "." || part == ".." || len(part) > MaxName {
			return false
		}
	}
	return true
}

// FileType says what an Entry is.
type FileType string

// The types.
const (
	TypeFile   FileType = "file"
	TypeDir    FileType = "dir"
	TypeLink   FileType = "link" // symbolic
	TypePipe   FileType = "pipe"
	TypeSocket FileType = "socket"
	TypeDevice FileType = "device"
	TypeOther  FileType = "other"
)

// Entry describes a file. Path is absolute in an answer, and relative to the
// directory that is listed in a frame of entries.
type Entry struct {
	Path     Path     `json:"path"`
	Type     FileType `json:"type"`
	Mode     uint32   `json:"mode"` // the lowest twelve bits
	Size     int64    `json:"size,omitempty"`
	Modified int64    `json:"modified"` // nanoseconds since 1970
	UID      uint32   `json:"uid,omitempty"`
	GID      uint32   `json:"gid,omitempty"`
	Target   Path     `json:"target,omitempty"` // of a link
}

// Stat asks for one file. A symbolic link at the end of the path is followed
// unless NoFollow is set.
type Stat struct {
	Path     Path   `json:"path"`
	User     string `json:"user,omitempty"`
	NoFollow bool   `json:"noFollow,omitempty"`
}

// ListFiles asks for the entries of a directory, in no order. Depth is how many
// levels are listed, at least 1; links are not followed, and what the kernel
// shows of itself (/proc, /sys, /dev) is not entered from outside. After Limit
// entries, if it is not 0, the listing ends.
type ListFiles struct {
	Path  Path   `json:"path"`
	User  string `json:"user,omitempty"`
	Depth int    `json:"depth"`
	Limit int64  `json:"limit,omitempty"`
}

// Listed ends a listing.
type Listed struct {
	// More is set when the limit ended it.
	More bool `json:"more,omitempty"`
	// Skipped counts directories that could not be read, or lie deeper than a
	// path can name; they are listed without what is in them.
	Skipped int64 `json:"skipped,omitempty"`
}

// Mkdir makes a directory, with Parents also those above it that are missing,
// and then one that exists is no error.
type Mkdir struct {
	Path    Path   `json:"path"`
	User    string `json:"user,omitempty"`
	Mode    uint32 `json:"mode"`
	Parents bool   `json:"parents,omitempty"`
}

// Made answers mkdir and write: the absolute path of the directory, and how
// many of it and those above it did not exist before.
type Made struct {
	Dir     Path `json:"dir"`
	Created int  `json:"created,omitempty"`
}

// Remove removes a file that is no directory, or with Dir a directory, with
// Recursive all that is in it. Links are removed and not followed.
type Remove struct {
	Path      Path   `json:"path"`
	User      string `json:"user,omitempty"`
	Dir       bool   `json:"dir,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
}

// Removed answers remove. That nothing was there is no error.
type Removed struct {
	Found bool `json:"found"`
}

// Rename moves a file or directory within one filesystem. A file at To is
// replaced.
type Rename struct {
	From Path   `json:"from"`
	To   Path   `json:"to"`
	User string `json:"user,omitempty"`
}

// Chmod sets the mode of what Path leads to.
type Chmod struct {
	Path Path   `json:"path"`
	User string `json:"user,omitempty"`
	Mode uint32 `json:"mode"`
}

// Pack asks for an archive of what is in a directory, or of one file. Format is
// "tar", "tar.gz" or "zip". The archive follows as data.
type Pack struct {
	Path   Path   `json:"path"`
	User   string `json:"user,omitempty"`
	Format string `json:"format"`
}

// Unpack announces an archive that is to be unpacked into a directory, which is
// made when it is missing. The archive follows as data. Zero bounds are the
// guest's own: what the disk has free, and what no good archive reaches.
type Unpack struct {
	Path       Path   `json:"path"`
	User       string `json:"user,omitempty"`
	Format     string `json:"format"`
	MaxBytes   int64  `json:"maxBytes,omitempty"`
	MaxEntries int64  `json:"maxEntries,omitempty"`
}

// Archived ends pack and unpack, the latter also beside an error: what was
// packed or unpacked until then.
type Archived struct {
	Files int64 `json:"files,omitempty"` // regular files and hard links
	Dirs  int64 `json:"dirs,omitempty"`
	Links int64 `json:"links,omitempty"` // symbolic
	Bytes int64 `json:"bytes,omitempty"` // content of files
	// Skipped counts what is none of these, or could not be read, and First is
	// the first of them, made printable.
	Skipped int64  `json:"skipped,omitempty"`
	First   string `json:"first,omitempty"`
}
