package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

// Over host directories a saved layer is taken apart: what lies in the target
// of one becomes a directory that the overlay of this host directory has
// between it and the new changes, and the rest becomes a layer of the image.
// That is done once for each set of targets; the result lies beside the layer
// and goes with it.

// parts is a saved layer that was taken apart.
type parts struct {
	Rest saved  `json:"rest"` // archive of what is in no target
	In   []part `json:"in"`   // for each host directory
	dir  string
}

// part is what a layer has in the target of a host directory.
type part struct {
	Tree   bool       `json:"tree"`   // there is something
	Closed bool       `json:"closed"` // nothing below shows
	Root   *ownership `json:"root"`   // how the target itself is, where the layer says so
}

type ownership struct {
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Mode uint32 `json:"mode"` // with the set-id and sticky bits
}

func (p *parts) tree(i int) string { return filepath.Join(p.dir, strconv.Itoa(i)) }

// parts takes a saved layer apart, or finds it so.
func (d *Driver) parts(ctx context.Context, dir string, dirs []driver.HostDir) (*parts, error) {
	info, err := d.knownInfo(ctx)
	if err != nil {
		return nil, err
	}
	if ok, reason := d.readsFiles(info); !ok {
		return nil, fault.New(fault.Unsupported, "saved layers cannot lie over host directories here: %s", reason)
	}
	unlock, err := d.layers.lock(ctx, dir)
	if err != nil {
		return nil, fault.From(err)
	}
	defer unlock()
	h := sha256.New()
	for _, hd := range dirs {
		fmt.Fprintf(h, "%s\x00", hd.Target)
	}
	p := &parts{dir: filepath.Join(dir, "parts-"+hex.EncodeToString(h.Sum(nil)[:8]))}
	note := filepath.Join(p.dir, noteFile)
	if b, err := os.ReadFile(note); err == nil && json.Unmarshal(b, p) == nil && len(p.In) == len(dirs) {
		return p, nil
	}
	// The rest of an attempt that a crash cut short.
	if err := os.RemoveAll(p.dir); err != nil {
		return nil, diskFault(err, "the saved layer cannot be taken apart")
	}
	if err := takeApart(ctx, dir, p, dirs); err != nil {
		_ = os.RemoveAll(p.dir) // the next attempt does it again
		return nil, diskFault(err, "the saved layer cannot be taken apart")
	}
	return p, nil
}

func takeApart(ctx context.Context, dir string, p *parts, dirs []driver.HostDir) error {
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	from, err := os.Open(filepath.Join(dir, layerFile))
	if err != nil {
		return err
	}
	defer from.Close()
	c := &cutter{ctx: ctx, from: from, dirs: dirs}
	if err := c.survey(); err != nil {
		return err
	}
	rest, err := os.OpenFile(filepath.Join(p.dir, layerFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer rest.Close()
	if err := c.cut(rest, -1); err != nil {
		return err
	}
	if p.Rest.Digest, p.Rest.Size, err = digestOf(rest); err != nil {
		return err
	}
	p.In = c.in
	for i := range p.In {
		if !p.In[i].Tree {
			continue
		}
		if err := c.unpack(p.tree(i), i); err != nil {
			return err
		}
	}
	if err := errors.Join(rest.Close(), layer.Sync(p.dir)); err != nil {
		return err
	}
	note, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(p.dir, "."+noteFile), filepath.Join(p.dir, noteFile), note)
}

// cutter reads an archive in the neutral form, as package layer has written it.
type cutter struct {
	ctx  context.Context
	from *os.File
	dirs []driver.HostDir
	in   []part

	// Files that have a name in another part too, which needs a copy.
	strangers map[string]stranger
}

type stranger struct {
	header tar.Header
	offset int64
}

// where says in which target a path lies, -1 for none.
func (c *cutter) where(p string) int {
	best := -1
	for i, h := range c.dirs {
		if below(p, h.Target) && (best < 0 || len(h.Target) > len(c.dirs[best].Target)) {
			best = i
		}
	}
	return best
}

// place is where the file, or for a mark the directory, of an entry is.
func (c *cutter) place(name string) (p string, i int) {
	p = path.Join("/", name)
	if path.Base(p) == ".wh..wh..opq" {
		return p, c.where(path.Dir(p))
	}
	if base, ok := strings.CutPrefix(path.Base(p), ".wh."); ok {
		return p, c.where(path.Join(path.Dir(p), base))
	}
	return p, c.where(p)
}

// each calls visit for every entry.
func (c *cutter) each(visit func(h *tar.Header, content io.Reader) error) error {
	if _, err := c.from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for t := tar.NewReader(c.from); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = c.ctx.Err()
		}
		if err == nil {
			err = visit(h, t)
		}
		if err != nil {
			return err
		}
	}
}

// survey finds out what is in which part.
func (c *cutter) survey() error {
	c.in = make([]part, len(c.dirs))
	c.strangers = make(map[string]stranger)
	err := c.each(func(h *tar.Header, _ io.Reader) error {
		p, i := c.place(h.Name)
		if i >= 0 {
			c.in[i].Tree = true
			if p == c.dirs[i].Target && h.Typeflag == tar.TypeDir {
				c.in[i].Root = &ownership{h.Uid, h.Gid, uint32(h.Mode) & 0o7777}
			}
		}
		if h.Typeflag == tar.TypeLink && c.where(path.Join("/", h.Linkname)) != i {
			c.strangers[path.Join("/", h.Linkname)] = stranger{}
		}
		return c.closes(p, h)
	})
	if err != nil || len(c.strangers) == 0 {
		return err
	}
	return c.each(func(h *tar.Header, _ io.Reader) error {
		p := path.Join("/", h.Name)
		if _, ok := c.strangers[p]; !ok {
			return nil
		}
		at, err := c.from.Seek(0, io.SeekCurrent)
		c.strangers[p] = stranger{*h, at}
		return err
	})
}

// closes notes which targets an entry hides what is below of.
func (c *cutter) closes(p string, h *tar.Header) error {
	hides := ""
	if path.Base(p) == ".wh..wh..opq" {
		hides = path.Dir(p)
	} else if base, ok := strings.CutPrefix(path.Base(p), ".wh."); ok {
		hides = path.Join(path.Dir(p), base)
	}
	for i, d := range c.dirs {
		switch {
		case hides != "" && below(d.Target, hides):
			c.in[i].Tree, c.in[i].Closed = true, true
		case hides == "" && h.Typeflag != tar.TypeDir && below(d.Target, p):
			return fault.New(fault.Invalid, "the saved layer has a file at %.200q, where the host directory %s is to be shown", p, d.Target)
		}
	}
	return nil
}

// cut writes one part as an archive of its own, with names that begin at the
// target; -1 is what is in none. The mark of a target that is deleted or
// opaque is left to Closed.
func (c *cutter) cut(w io.Writer, i int) error {
	t := tar.NewWriter(w)
	strip := "/"
	if i >= 0 {
		strip = c.dirs[i].Target
	}
	placed := make(map[string]string) // copies of strangers: the first name in this part
	err := c.each(func(h *tar.Header, content io.Reader) error {
		p, at := c.place(h.Name)
		if at != i || i >= 0 && (!below(p, strip) || p == path.Join(strip, ".wh..wh..opq")) {
			return nil
		}
		out := *h
		out.Name = relative(p, strip, h.Typeflag == tar.TypeDir)
		if h.Typeflag == tar.TypeLink {
			target := path.Join("/", h.Linkname)
			if c.where(target) != i {
				return c.copyStranger(t, placed, target, out.Name)
			}
			out.Linkname = relative(target, strip, false)
		}
		if err := t.WriteHeader(&out); err != nil {
			return err
		}
		_, err := io.Copy(t, content)
		return err
	})
	if err != nil {
		return err
	}
	return t.Close()
}

// copyStranger writes a file whose other name is in another part.
func (c *cutter) copyStranger(t *tar.Writer, placed map[string]string, target, name string) error {
	s := c.strangers[target]
	h := s.header
	if first, ok := placed[target]; ok {
		h = tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeLink, Linkname: first, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime}
	}
	h.Name = name
	if err := t.WriteHeader(&h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	placed[target] = name
	_, err := io.Copy(t, io.NewSectionReader(c.from, s.offset, h.Size))
	return err
}

// relative is the name in an archive of a path below dir.
func relative(p, dir string, isDir bool) string {
	name := strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
	if name == "" {
		return "./"
	}
	if isDir {
		name += "/"
	}
	return name
}

// unpack makes a part the lower directory of an overlay.
func (c *cutter) unpack(dir string, i int) error {
	pr, pw := io.Pipe()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		pw.CloseWithError(c.cut(pw, i))
	}()
	err := layer.ReadOverlay(c.ctx, pr, dir, layer.Limits{})
	pr.CloseWithError(fs.ErrClosed) // unblocks the writer
	<-wrote
	return err
}
