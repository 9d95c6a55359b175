package gvisor

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// overlay collects the parts of one overlay mount. All parts are descriptors
// and named through /proc/self/fd: the mount options are bounded to one page,
// and a path may hold characters that mean something there.
type overlay struct {
	lowers   []*os.File // topmost first
	upper    *os.File
	work     *os.File
	readOnly bool
}

func (o *overlay) lower(dir string) error {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	o.lowers = append(o.lowers, f)
	return nil
}

// lowerIn adds the directory rel of a layer, if the layer has one.
func (o *overlay) lowerIn(layer, rel string) error {
	root, err := os.OpenRoot(layer)
	if err != nil {
		return fmt.Errorf("open layer: %w", err)
	}
	defer root.Close()
	info, err := root.Lstat(rel)
	if err != nil || !info.IsDir() {
		return nil
	}
	f, err := root.Open(rel)
	if err != nil {
		return fmt.Errorf("open layer: %w", err)
	}
	o.lowers = append(o.lowers, f)
	return nil
}

func (o *overlay) private(upper, work string) (err error) {
	if o.upper, err = os.Open(upper); err != nil {
		return fmt.Errorf("open private layer: %w", err)
	}
	if o.work, err = os.Open(work); err != nil {
		return fmt.Errorf("open private layer: %w", err)
	}
	return nil
}

func (o *overlay) mount(target string) error {
	if o.readOnly && len(o.lowers) == 1 {
		return bindReadOnly(o.lowers[0], target)
	}
	lowers := make([]string, len(o.lowers))
	for i, f := range o.lowers {
		lowers[i] = fdPath(f)
	}
	// Without the features that make a layer of use in one place only, whatever
	// the defaults of this kernel are.
	options := "index=off,redirect_dir=nofollow,metacopy=off,lowerdir=" + strings.Join(lowers, ":")
	var flags uintptr
	switch {
	case o.readOnly:
		flags = unix.MS_RDONLY
	default:
		options += ",upperdir=" + fdPath(o.upper) + ",workdir=" + fdPath(o.work)
	}
	if unix.Geteuid() == 0 && !inInitialUserNamespace() {
		// Overlay marks of trusted.* cannot be read here, those of user.* can.
		options += ",userxattr"
	}
	if len(options) >= os.Getpagesize() {
		return fmt.Errorf("%d layers are more than one mount can hold", len(o.lowers))
	}
	return unix.Mount("overlay", target, "overlay", flags, options)
}

func (o *overlay) close() {
	for _, f := range append(o.lowers, o.upper, o.work) {
		if f != nil {
			f.Close()
		}
	}
}

// bindReadOnly shows source at target, with the mounts below source: in a user
// namespace they cannot be left out, as that might uncover what they hide.
func bindReadOnly(source *os.File, target string) error {
	tree, err := unix.OpenTree(int(source.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make read-only: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// inInitialUserNamespace reports whether all user ids are mapped as they are.
func inInitialUserNamespace() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
}
