package gvisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// TestSuspendedImageDoesNotFit resumes what cannot be: with a reason, and the
// files.
func TestSuspendedImageDoesNotFit(t *testing.T) {
	r := newRig(t)
	r.need(t, driver.FeatureCheckpoint)
	r.boot(t, "s")
	change := func(f func(*image)) func() {
		return func() {
			var img image
			must(t, readJSON(r.box("s").imageRecord(), &img))
			f(&img)
			must(t, writeJSON(r.box("s").imageRecord(), &img, false))
		}
	}
	damage := func(name string, at int64) func() {
		return func() {
			f, err := os.OpenFile(filepath.Join(r.box("s").image(), name), os.O_RDWR, 0)
			must(t, err)
			defer f.Close()
			_, err = f.WriteAt([]byte("damage"), at)
			must(t, err)
		}
	}
	accept := func() { // what nobody could tell from a good one
		b := r.box("s")
		change(func(img *image) {
			for i, name := range imageFiles {
				f, err := os.Open(filepath.Join(b.image(), name))
				must(t, err)
				defer f.Close()
				img.Parts[i], err = measure(f)
				must(t, err)
			}
		})()
	}
	for name, harm := range map[string]func(){
		"another build":     change(func(i *image) { i.Build = "gVisor 1.0" }),
		"another processor": change(func(i *image) { i.CPU = "6502" }),
		"another guest":     change(func(i *image) { i.Guest = "sha256:00" }),
		"damaged pages":     damage(imageFiles[2], 8192),
		"damaged state":     damage(imageFiles[0], 600),
		"torn record":       func() { must(t, os.Truncate(r.box("s").imageRecord(), 10)) },
		"missing pages":     func() { must(t, os.Remove(filepath.Join(r.box("s").image(), imageFiles[2]))) },
		"cannot be loaded":  func() { must(t, os.Truncate(filepath.Join(r.box("s").image(), imageFiles[0]), 5000)); accept() },
	} {
		r.sh(t, "s", "echo "+strconv.Quote(name)+" >/kept; echo process >/dev/shm/lost")
		r.suspend(t, "s")
		harm()
		reason := r.resume(t, "s", false)
		if !strings.Contains(reason, "memory image") {
			t.Errorf("%s: %q", name, reason)
		}
		r.want(t, "s", "cat /kept; ls /dev/shm", name)
	}
}
