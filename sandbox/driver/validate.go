package driver

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

var (
	idPattern       = regexp.MustCompile(`\A[a-z][a-z0-9_-]{0,62}\z`)
	hostnamePattern = regexp.MustCompile(`\A[A-Za-z0-9_]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9_])?\z`)
)

// ValidID reports whether id can be the id of a sandbox. No sandbox has
// another one, so a driver need not look for it.
func ValidID(id string) bool { return idPattern.MatchString(id) }

// Validate returns an Invalid fault when the spec is malformed or names what
// is not there. What a driver cannot do on its host is for the driver to say.
func (s Spec) Validate() error {
	if !ValidID(s.ID) {
		return fault.InvalidField("id", "must be 1 to 63 of a-z, 0-9, _ and -, starting with a letter")
	}
	if s.Hostname != "" && !hostnamePattern.MatchString(s.Hostname) {
		return fault.InvalidField("hostname", "must be 1 to 64 of letters, digits, _, . and -")
	}
	if err := s.Guest.validate(); err != nil {
		return err
	}
	if err := s.Limits.validate(); err != nil {
		return err
	}
	return s.Rootfs.validate()
}

func (g Guest) validate() error {
	if !filepath.IsAbs(g.Path) {
		return fault.InvalidField("guest", "the path %q must be absolute", g.Path)
	}
	if info, err := os.Stat(g.Path); err != nil || !info.Mode().IsRegular() {
		return fault.InvalidField("guest", "%q is no program", g.Path)
	}
	for _, env := range g.Env {
		if name, _, ok := strings.Cut(env, "="); !ok || name == "" || strings.ContainsRune(env, 0) {
			return fault.InvalidField("guest", "%.64q in its environment is not KEY=value", env)
		}
	}
	return nil
}

func (l Limits) validate() error {
	for _, limit := range []struct {
		field string
		value int64
	}{
		{FeatureMemoryLimit, l.MemoryBytes}, {FeatureCPULimit, l.CPUMillis},
		{FeatureDiskLimit, l.DiskBytes}, {FeatureProcessLimit, l.Processes},
	} {
		if limit.value < 0 {
			return fault.InvalidField(limit.field, "must not be negative")
		}
	}
	return nil
}

func (r Rootfs) validate() error {
	for _, layer := range r.Layers {
		if err := checkDir("layer", layer); err != nil {
			return err
		}
	}
	for _, dir := range r.Saved {
		if err := checkDir("saved layer", dir); err != nil {
			return err
		}
	}
	seen := make(map[string]bool)
	for _, dir := range r.HostDirs {
		if err := checkDir("host directory", dir.Source); err != nil {
			return err
		}
		t := dir.Target
		switch {
		case !path.IsAbs(t) || path.Clean(t) != t || t == "/":
			return fault.InvalidField("host directory", "the target %q must be an absolute, clean path below /", t)
		case within(GuestPath, t) || within(t, path.Dir(GuestPath)):
			return fault.InvalidField("host directory", "the target %q is where the guest is", t)
		case within(t, "/proc") || within(t, "/sys") || within(t, "/dev"):
			return fault.InvalidField("host directory", "the target %q is taken by the system", t)
		case seen[t]:
			return fault.InvalidField("host directory", "the target %q is given twice", t)
		}
		seen[t] = true
	}
	return nil
}

func checkDir(field, dir string) error {
	if !filepath.IsAbs(dir) {
		return fault.InvalidField(field, "%q must be an absolute path", dir)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fault.InvalidField(field, "%q is no directory", dir)
	}
	return nil
}

// within reports whether the clean path p is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
