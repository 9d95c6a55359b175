package sandbox_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

func TestParseBytes(t *testing.T) {
	good := map[string]int64{
		"0": 0, "1": 1, "1024": 1024, "1Ki": 1 << 10, "512Mi": 512 << 20, "1Gi": 1 << 30, "1.5Gi": 3 << 29,
		"1G": 1e9, "2M": 2e6, "3k": 3e3, "3K": 3e3, "1MiB": 1 << 20, "1GB": 1e9, "10B": 10,
		".5Ki": 512, "1.Ki": 1024, "0.5": 0, "9223372036854775807": math.MaxInt64,
	}
	for in, want := range good {
		if got, err := sandbox.ParseBytes(in); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	bad := []string{
		"", " ", "Mi", "-1", "+1", "1 Mi", "1mi", "1Zi", "1e9", "0x10", "1/2", "1_000", "1..2", ".", "BB", "1BB",
		"9223372036854775808", "9000Pi", "١Mi", strings.Repeat("9", 41),
	}
	for _, in := range bad {
		if got, err := sandbox.ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", in, got)
		}
	}
}

func TestParseCPU(t *testing.T) {
	good := map[string]int64{"500m": 500, "0.5": 500, "1": 1000, "1000m": 1000, "2": 2000, "0": 0, ".25": 250, "0.0001": 0, "1.5m": 1}
	for in, want := range good {
		if got, err := sandbox.ParseCPU(in); err != nil || got != want {
			t.Errorf("ParseCPU(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "m", "-1", "1M", "1 m", "1mm", "half", "9223372036854775807", "1e3", "1.2.3"} {
		if got, err := sandbox.ParseCPU(in); err == nil {
			t.Errorf("ParseCPU(%q) = %d, want an error", in, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	good := map[string]time.Duration{
		"0": 0, "0s": 0, "30s": 30 * time.Second, "10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "10m0s": 10 * time.Minute,
		"250ms": 250 * time.Millisecond, "1.5h": 90 * time.Minute, "7d": 168 * time.Hour, "1w": 168 * time.Hour,
	}
	for in, want := range good {
		if got, err := sandbox.ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "s", "30", "-30s", "+30s", "30 s", "30x", "30s5", "1..5s", "300000w", "292y", "999999h999999999h9999999h"} {
		if got, err := sandbox.ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
}

func TestFormatQuantities(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1: "1", 1 << 10: "1Ki", 512 << 20: "512Mi", 1 << 30: "1Gi", 1e9: "1000000000", 1536 << 20: "1536Mi"} {
		if got := sandbox.FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", 30 * time.Second: "30s", 10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 24 * time.Hour: "24h", time.Microsecond: "1us"} {
		if got := sandbox.FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%v) = %q, want %q", d, got, want)
		}
	}
	if got := sandbox.FormatCPU(500); got != "500m" {
		t.Errorf("FormatCPU(500) = %q", got)
	}
}

// What was parsed can be written and parsed again, and is never negative.
func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"512Mi", "1G", "1.5Gi", "-1", "9e9", ".Ki"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := sandbox.ParseBytes(s)
		if err != nil {
			return
		}
		if back, err := sandbox.ParseBytes(sandbox.FormatBytes(n)); n < 0 || err != nil || back != n {
			t.Fatalf("%q = %d, back %d, %v", s, n, back, err)
		}
	})
}

func FuzzParseCPU(f *testing.F) {
	for _, s := range []string{"500m", "0.5", "2", "-1", "1e3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := sandbox.ParseCPU(s)
		if err != nil {
			return
		}
		if back, err := sandbox.ParseCPU(sandbox.FormatCPU(n)); n < 0 || err != nil || back != n {
			t.Fatalf("%q = %d, back %d, %v", s, n, back, err)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"30s", "1h30m", "7d", "0", "1.5h", "-1s", "1w2d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := sandbox.ParseDuration(s)
		if err != nil {
			return
		}
		if back, err := sandbox.ParseDuration(sandbox.FormatDuration(d)); d < 0 || err != nil || back != d {
			t.Fatalf("%q = %v, back %v, %v", s, d, back, err)
		}
	})
}
