package sandbox

import (
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxPoint bounds the text of a point.
const maxPoint = 512

// ParsePoint reads a point as people write it: "runtime:base:latest" or
// "srt_…", "snp_…" or "snapshot:TAG", "sbx_…" or the name of a sandbox, and
// "SANDBOX@CHECKPOINT".
func ParsePoint(text string) (Point, error) {
	var p Point
	sandbox, checkpoint, at := strings.Cut(text, "@")
	switch {
	case len(text) > maxPoint:
		return Point{}, notAPoint(text)
	case strings.HasPrefix(text, "runtime:"):
		p.Runtime = strings.TrimPrefix(text, "runtime:")
	case strings.HasPrefix(text, "srt_"):
		p.Runtime = text
	case strings.HasPrefix(text, "snapshot:"):
		p.Snapshot = strings.TrimPrefix(text, "snapshot:")
	case IsSnapshotID(text):
		p.Snapshot = text
	case !IsID(sandbox) && !nameRule.MatchString(sandbox), at && checkpoint == "":
		return Point{}, notAPoint(text)
	default:
		p.Sandbox, p.Checkpoint = sandbox, checkpoint
	}
	if p == (Point{}) {
		return Point{}, notAPoint(text)
	}
	return p, nil
}

func notAPoint(text string) error {
	return fault.InvalidField("point", "%q is nothing to compare: write runtime:NAME, snp_… or snapshot:TAG, a sandbox, or SANDBOX@CHECKPOINT", clip(text, 64))
}

// String writes a point as ParsePoint reads it.
func (p Point) String() string {
	switch {
	case p.Runtime != "":
		return "runtime:" + p.Runtime
	case p.Snapshot != "":
		return "snapshot:" + p.Snapshot
	case p.Checkpoint != "":
		return p.Sandbox + "@" + p.Checkpoint
	}
	return p.Sandbox
}

// validate checks that a point names one thing.
func (p Point) validate() error {
	n := 0
	for _, field := range []string{p.Runtime, p.Snapshot, p.Sandbox} {
		if field != "" {
			n++
		}
	}
	if n != 1 || p.Checkpoint != "" && p.Sandbox == "" {
		return notAPoint(p.String())
	}
	return nil
}
