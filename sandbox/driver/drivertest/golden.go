package drivertest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/layer"
)

// goldenLook is what goldenSeen is the output of, in the folder of the golden
// layer.
const (
	goldenLook = `cat file 'ünï
côdé'; stat -c '%a %s' file program sparse; stat -c %a closed; readlink link; [ one -ef two ] && cat two; [ -p fifo ] && echo fifo; stat -c %Y file opaque; ls opaque`
	goldenSeen = "golden\nodd\n640 7\n4755 2\n600 20000\n700\n../up\nlinked\nfifo\n981173106\n981173106\nhigh"
)

// GoldenLayer makes the layer of testdata: all kinds of files below /workspace
// and a few of the system, as any driver exports them. It needs root and a
// filesystem that keeps the marks of overlayfs.
func GoldenLayer(dir string) ([]byte, error) {
	var failed error
	ok := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	at := func(name string) string {
		p := filepath.Join(dir, name)
		ok(os.MkdirAll(filepath.Dir(p), 0o755))
		return p
	}
	file := func(name, content string, mode os.FileMode) {
		ok(os.WriteFile(at(name), []byte(content), 0o600))
		ok(os.Chmod(at(name), mode))
	}
	file("workspace/golden/file", "golden\n", 0o640)
	file("workspace/golden/ünï\ncôdé", "odd\n", 0o644)
	file("workspace/golden/program", "x\n", 0o755|os.ModeSetuid)
	file("workspace/golden/owned", "x", 0o644)
	ok(os.Chown(at("workspace/golden/owned"), 1234, 2345))
	ok(unix.Setxattr(at("workspace/golden/owned"), "user.colour", []byte("blue"), 0))
	ok(os.Symlink("../up", at("workspace/golden/link")))
	file("workspace/golden/one", "linked\n", 0o644)
	ok(os.Link(at("workspace/golden/one"), at("workspace/golden/two")))
	ok(unix.Mkfifo(at("workspace/golden/fifo"), 0o600))
	ok(os.Mkdir(at("workspace/golden/closed"), 0o700))
	file("workspace/golden/sparse", "", 0o600)
	ok(os.Truncate(at("workspace/golden/sparse"), 20_000))
	file("workspace/golden/opaque/high", "x", 0o644)
	ok(unix.Setxattr(at("workspace/golden/opaque"), "trusted.overlay.opaque", []byte("y"), 0))
	file("workspace/golden/merged/high", "x", 0o644)
	for _, gone := range []string{"workspace/golden/gone", "bin/true", "home"} {
		ok(unix.Mknod(at(gone), unix.S_IFCHR, 0))
	}
	file("etc/issue", "golden\n", 0o644)
	for _, d := range []string{".", "workspace", "workspace/golden", "workspace/golden/opaque", "workspace/golden/merged", "bin", "etc"} {
		ok(os.Chmod(filepath.Join(dir, d), 0o755))
	}
	when := unix.NsecToTimespec(time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC).UnixNano())
	ok(filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW)
	}))
	if failed != nil {
		return nil, failed
	}
	var b bytes.Buffer
	err := layer.WriteOverlay(context.Background(), dir, &b, layer.Options{})
	return b.Bytes(), err
}
