package sandbox_test

import (
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func TestParsePoint(t *testing.T) {
	for text, want := range map[string]sandbox.Point{
		"runtime:base:latest": {Runtime: "base:latest"},
		"srt_base":            {Runtime: "srt_base"},
		"snp_abc":             {Snapshot: "snp_abc"},
		"snapshot:v1":         {Snapshot: "v1"},
		"sbx_abc":             {Sandbox: "sbx_abc"},
		"web":                 {Sandbox: "web"},
		"sbx_abc@before":      {Sandbox: "sbx_abc", Checkpoint: "before"},
		"web@ckpt_abc":        {Sandbox: "web", Checkpoint: "ckpt_abc"},
		"web@a@b":             {Sandbox: "web", Checkpoint: "a@b"},
	} {
		if got, err := sandbox.ParsePoint(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "@", "web@", "@x", "runtime:", "snapshot:", "Web", "a b", "v1.0", strings.Repeat("x", 600)} {
		if got, err := sandbox.ParsePoint(text); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func FuzzParsePoint(f *testing.F) {
	for _, s := range []string{"runtime:base:latest", "snp_x", "snapshot:v1", "sbx_x@c", "web@", "srt_a", "runtime:srt_a@b", "@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := sandbox.ParsePoint(text)
		if err != nil {
			return
		}
		if again, err := sandbox.ParsePoint(p.String()); err != nil || again != p {
			t.Errorf("%q is %+v, written %q, and read again %+v, %v", text, p, p.String(), again, err)
		}
	})
}
