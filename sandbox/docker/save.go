package docker

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

// Save implements driver.Saver.
func (d *Driver) Save(ctx context.Context, id, dir string) error {
	unlock, o, r, err := d.saveable(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	info, err := d.knownInfo(ctx)
	if err != nil {
		return err
	}
	if ok, reason := d.readsFiles(info); !ok && len(r.Rootfs.HostDirs) > 0 {
		return fault.New(fault.Unsupported, "what sandbox %s wrote to host directories cannot be saved here: %s", id, reason).About("sandbox")
	}
	s := &saving{d: d, id: id, o: o, r: r, dir: dir}
	defer s.close()
	note, err := fillSaved(dir, func(f *os.File) error { return s.write(ctx, info, f) })
	// A commit has made an image: it is the one that the first sandbox of
	// this layer would need.
	if s.image != "" {
		s.keepImage(ctx, note, err == nil)
	}
	return err
}

// saveable locks a sandbox and looks at it. The caller unlocks.
func (d *Driver) saveable(ctx context.Context, id string) (unlock func(), o observed, r record, err error) {
	if !driver.ValidID(id) {
		return nil, o, r, notFound(id)
	}
	release, err := d.locks.lock(ctx, id)
	if err != nil {
		return nil, o, r, fault.From(err)
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	if o, err = d.inspect(ctx, id); err != nil {
		return nil, o, r, err
	}
	if o.state() == driver.Broken {
		return nil, o, r, fault.New(fault.State, "sandbox %s is broken; it can only be removed", id).About("sandbox")
	}
	r, ok := d.readRecord(id)
	if !ok {
		return nil, o, r, fault.New(fault.Unsupported, "sandbox %s was made by a version of sandgate that saved no layers; make it anew", id).About("sandbox")
	}
	return release, o, r, nil
}

// saving is one Save under way.
type saving struct {
	d     *Driver
	id    string
	o     observed
	r     record
	dir   string
	image string     // that a commit has made
	files []*os.File // without names
}

func (s *saving) close() {
	for _, f := range s.files {
		f.Close()
	}
}

func (s *saving) passing() (*os.File, error) {
	f, err := s.d.passing()
	if err == nil {
		s.files = append(s.files, f)
	}
	return f, err
}

// write writes the private layer to f.
func (s *saving) write(ctx context.Context, info *system.Info, f *os.File) error {
	uppers, err := s.d.uppers(ctx, s.id, s.r)
	if err != nil {
		return err
	}
	top := f
	several := len(uppers) > 0 || s.r.Generation > 0
	if several {
		if top, err = s.passing(); err != nil {
			return err
		}
	}
	views := make([]*os.File, len(uppers))
	for i := range uppers {
		if views[i], err = s.passing(); err != nil {
			return err
		}
	}
	space, err := freeSpace(s.dir)
	if err != nil {
		return err
	}
	writable := s.d.writable(info, s.o)
	err = s.d.still(ctx, s.id, s.o, func() error {
		if writable == "" {
			if err := s.commit(ctx); err != nil {
				return err
			}
		} else if err := readTree(ctx, writable, top, layer.Options{Skip: s.notOfContainer, MaxBytes: space}); err != nil {
			return err
		}
		for i, upper := range uppers {
			if err := readTree(ctx, upper, views[i], layer.Options{Skip: s.notOfView(i), MaxBytes: space}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if writable == "" {
		if err := s.fetch(ctx, top); err != nil {
			return err
		}
	}
	if !several {
		return nil
	}
	return s.merge(ctx, f, top, views)
}

// freeSpace bounds what is written: a file may claim to be larger than any
// disk.
func freeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, diskFault(err, "the saved layer cannot be written")
	}
	return max(int64(st.Bavail)*st.Bsize, 1), nil
}

func readTree(ctx context.Context, dir string, f *os.File, o layer.Options) error {
	w := bufio.NewWriterSize(f, 256<<10)
	if err := layer.WriteOverlay(ctx, dir, w, o); err != nil {
		return err
	}
	return w.Flush()
}

// notOfContainer: in a target lies only where the engine mounted its volume.
func (s *saving) notOfContainer(p string) bool {
	if ours(p) {
		return true
	}
	for _, h := range s.r.Rootfs.HostDirs {
		if below(p, h.Target) {
			return true
		}
	}
	return false
}

// notOfView: what a deeper host directory covers is not to be seen here.
func (s *saving) notOfView(i int) func(string) bool {
	target := s.r.Rootfs.HostDirs[i].Target
	return func(p string) bool {
		full := path.Join(target, p)
		return ours(full) || covered(full, target, s.r.Rootfs.HostDirs)
	}
}

// merge puts the parts of a private layer together.
func (s *saving) merge(ctx context.Context, f, top *os.File, views []*os.File) error {
	stack, err := s.d.stack(ctx, s.id, s.r)
	if err != nil {
		return err
	}
	var all []io.ReadSeeker
	for i, view := range views {
		before, err := attributes(s.r.Rootfs.HostDirs[i], i, stack)
		if err != nil {
			return err
		}
		moved, err := s.passing()
		if err != nil {
			return err
		}
		if err := relocate(ctx, view, moved, s.r.Rootfs.HostDirs[i].Target, before); err != nil {
			return diskFault(err, "the saved layer cannot be written")
		}
		all = append(all, moved)
	}
	all = append(all, top)
	if s.r.Generation > 0 {
		own, err := os.Open(filepath.Join(s.d.restored(s.id, s.r.Generation), layerFile))
		if err != nil {
			return diskFault(err, "the layer that the sandbox was restored from cannot be read")
		}
		defer own.Close()
		all = append(all, own)
	}
	w := bufio.NewWriterSize(f, 256<<10)
	if err := layer.Merge(ctx, w, all...); err != nil {
		return err
	}
	return diskFaultOrNil(w.Flush())
}

func diskFaultOrNil(err error) error {
	if err == nil {
		return nil
	}
	return diskFault(err, "the saved layer cannot be written")
}

// relocate moves the entries of an archive below a directory. A root that is
// as it was before, with nothing in it, is no change.
func relocate(ctx context.Context, from io.ReadSeeker, to io.Writer, target string, before ownership) error {
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	w := bufio.NewWriterSize(to, 256<<10)
	out := tar.NewWriter(w)
	in := tar.NewReader(from)
	var root *tar.Header // held back until there is more
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		name := path.Join("/", h.Name)
		moved := *h
		moved.Name = relative(path.Join(target, name), "/", h.Typeflag == tar.TypeDir)
		if h.Typeflag == tar.TypeLink {
			moved.Linkname = relative(path.Join(target, h.Linkname), "/", false)
		}
		if name == "/" {
			root = &moved
			if before == (ownership{h.Uid, h.Gid, uint32(h.Mode) & 0o7777}) {
				continue
			}
		}
		if root != nil {
			if err := out.WriteHeader(root); err != nil {
				return err
			}
			root = nil
		}
		if name == "/" {
			continue
		}
		if err := out.WriteHeader(&moved); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), w.Flush())
}

// commit lets the engine keep the writable layer as an image. Its labels are
// not those of the sandbox, with which it would go.
func (s *saving) commit(ctx context.Context) error {
	dirs := []string{s.dir}
	if s.r.Generation > 0 {
		dirs = append(dirs, s.d.restored(s.id, s.r.Generation))
	}
	labels := map[string]string{
		labelState: s.d.state, labelID: nobody, labelLabels: "",
		labelSaved: encodePaths(append(dirs, s.r.Rootfs.Saved...)),
	}
	made, err := s.d.cli.ContainerCommit(ctx, s.o.ID, client.ContainerCommitOptions{NoPause: true, Config: &container.Config{Labels: labels}})
	if err != nil {
		return s.d.engineError(ctx, err, "save the sandbox")
	}
	s.image = made.ID
	return nil
}

// fetch asks for the layer of the image that was committed. Where nothing had
// changed there is none.
func (s *saving) fetch(ctx context.Context, f *os.File) error {
	before, err := s.d.cli.ImageInspect(ctx, s.o.Image)
	if err != nil {
		return s.d.engineError(ctx, err, "look at an image")
	}
	image, err := s.d.saveImage(ctx, s.image)
	if err != nil {
		return err
	}
	defer image.Close()
	n := len(before.RootFS.Layers)
	if len(image.layers) < n || len(image.layers) > n+1 {
		return fault.New(fault.Internal, "the docker engine committed %d layers over %d", len(image.layers)-n, n)
	}
	content, err := plain(image.layers[len(image.layers)-1])
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the docker engine saved an image that cannot be read")
	}
	if len(image.layers) == n {
		content = emptyLayer()
	}
	return s.d.normalise(ctx, content, f, 0)
}

// keepImage names the committed image, or removes it where nobody would look
// for it.
func (s *saving) keepImage(ctx context.Context, note saved, ok bool) {
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if ok && s.r.Rootfs.Digest != "" && len(s.r.Rootfs.HostDirs) == 0 {
		below := s.r
		below.Generation = 0
		stack, err := s.d.stack(settle, s.id, below)
		if err == nil {
			base := s.d.layerImage(s.r.Rootfs.Digest)
			ref := s.d.stackImage(base, append([]stacked{{saved: note}}, stack...))
			_, err = s.d.cli.ImageTag(settle, client.ImageTagOptions{Source: s.image, Target: ref})
		}
		if err == nil {
			return
		}
		s.d.log.Warn("the image of a saved layer is not kept", "sandbox", s.id, "error", err)
	}
	if err := s.d.removeImage(settle, s.image); err != nil {
		s.d.log.Warn("the image of a saved layer is left over", "sandbox", s.id, "error", err)
	}
}
