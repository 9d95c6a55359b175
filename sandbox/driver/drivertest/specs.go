package drivertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func specTests() []test {
	return []test{
		{name: "Spec/Invalid", run: testSpecInvalid},
		{name: "Spec/UnsupportedLimits", run: testUnsupportedLimits},
	}
}

// testSpecInvalid holds that a malformed spec is refused as a whole.
func testSpecInvalid(t *testing.T, e *env) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	// A driver without host directories may say that first.
	hostDirs := []fault.Code{fault.Invalid}
	if !e.support(t, driver.FeatureHostDirs).OK {
		hostDirs = append(hostDirs, fault.Unsupported)
	}
	hostDir := func(source, target string) func(*driver.Spec) {
		return func(s *driver.Spec) {
			s.Rootfs.HostDirs = []driver.HostDir{{Source: source, Target: target}}
		}
	}
	layer := func(path string) func(*driver.Spec) {
		return func(s *driver.Spec) {
			s.Rootfs.Layers = append([]string{path}, s.Rootfs.Layers...)
			s.Rootfs.Digest = ""
		}
	}
	id := func(id string) func(*driver.Spec) { return func(s *driver.Spec) { s.ID = id } }

	tests := []struct {
		name   string
		change func(*driver.Spec)
		codes  []fault.Code
	}{
		{"id empty", id(""), nil},
		{"id upper case", id("Abc"), nil},
		{"id starts with a digit", id("1abc"), nil},
		{"id starts with a dash", id("-abc"), nil},
		{"id with a dot", id("a.b"), nil},
		{"id with a slash", id("a/b"), nil},
		{"id climbs", id("../" + newID()), nil},
		{"id with a space", id("a b"), nil},
		{"id with a newline", id(newID() + "\n"), nil},
		{"id not ASCII", id("aä"), nil},
		{"id too long", id(strings.Repeat("a", 64)), nil},
		{"hostname with a space", func(s *driver.Spec) { s.Hostname = "a b" }, nil},
		{"hostname with a newline", func(s *driver.Spec) { s.Hostname = "a\nb" }, nil},
		{"hostname too long", func(s *driver.Spec) { s.Hostname = strings.Repeat("a", 65) }, nil},
		{"layer relative", layer("tmp"), nil},
		{"layer missing", layer(missing), nil},
		{"layer a file", layer(file), nil},
		{"guest missing", func(s *driver.Spec) { s.Guest.Path = missing }, nil},
		{"guest empty", func(s *driver.Spec) { s.Guest.Path = "" }, nil},
		{"guest relative", func(s *driver.Spec) { s.Guest.Path = "guest" }, nil},
		{"guest a directory", func(s *driver.Spec) { s.Guest.Path = dir }, nil},
		{"guest environment without a name", func(s *driver.Spec) { s.Guest.Env = []string{"=x"} }, nil},
		{"guest environment without a value", func(s *driver.Spec) { s.Guest.Env = []string{"X"} }, nil},
		{"memory negative", func(s *driver.Spec) { s.Limits.MemoryBytes = -1 }, nil},
		{"cpu negative", func(s *driver.Spec) { s.Limits.CPUMillis = -1 }, nil},
		{"disk negative", func(s *driver.Spec) { s.Limits.DiskBytes = -1 }, nil},
		{"processes negative", func(s *driver.Spec) { s.Limits.Processes = -1 }, nil},
		{"host directory relative", hostDir("tmp", "/mnt/x"), hostDirs},
		{"host directory missing", hostDir(missing, "/mnt/x"), hostDirs},
		{"host directory a file", hostDir(file, "/mnt/x"), hostDirs},
		{"host directory target relative", hostDir(dir, "mnt/x"), hostDirs},
		{"host directory target climbs", hostDir(dir, "/mnt/../../x"), hostDirs},
		{"host directory target the root", hostDir(dir, "/"), hostDirs},
		{"host directory target empty", hostDir(dir, ""), hostDirs},
		{"host directory target over the guest", hostDir(dir, filepath.Dir(driver.GuestPath)), hostDirs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := e.spec()
			tt.change(&s)
			codes := tt.codes
			if codes == nil {
				codes = []fault.Code{fault.Invalid}
			}
			err := e.d.Create(ctx(t), s)
			if err == nil {
				defer e.remove(t, s.ID)
			}
			wantCode(t, err, codes...)
			if err != nil {
				e.noTrace(t, s.ID)
			}
		})
	}
}

// testUnsupportedLimits holds that no limit is taken and then not enforced.
func testUnsupportedLimits(t *testing.T, e *env) {
	for feature, change := range map[string]func(*driver.Spec){
		driver.FeatureMemoryLimit:  func(s *driver.Spec) { s.Limits.MemoryBytes = 256 << 20 },
		driver.FeatureCPULimit:     func(s *driver.Spec) { s.Limits.CPUMillis = 500 },
		driver.FeatureDiskLimit:    func(s *driver.Spec) { s.Limits.DiskBytes = 256 << 20 },
		driver.FeatureProcessLimit: func(s *driver.Spec) { s.Limits.Processes = 256 },
		driver.FeatureHostDirs: func(s *driver.Spec) {
			s.Rootfs.HostDirs = []driver.HostDir{{Source: t.TempDir(), Target: "/mnt/x"}}
		},
	} {
		t.Run(feature, func(t *testing.T) {
			s := e.spec()
			change(&s)
			err := e.d.Create(ctx(t), s)
			if e.support(t, feature).OK {
				if err != nil {
					t.Fatalf("supported, but: %s", causes(err))
				}
				e.remove(t, s.ID)
				return
			}
			wantCode(t, err, fault.Unsupported)
			e.noTrace(t, s.ID)
		})
	}
}
