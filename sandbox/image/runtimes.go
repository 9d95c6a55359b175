package image

import (
	"slices"
	"strings"

	"github.com/sandgate/sandgate/sandbox"
)

// The ids of the runtimes. They are part of the API: records of sandboxes
// keep them, so they never change.
const (
	HostID = "srt_host"
	BaseID = "srt_base"
)

// definition is one entry of the catalog: what people read about a runtime and
// the ways to make it, which are tried in this order: host, image, bootstrap.
type definition struct {
	meta      sandbox.Runtime
	host      bool       // this machine's own programs
	image     string     // OCI reference
	bootstrap *bootstrap // Debian packages
}

// bootstrap is a recipe for mmdebstrap.
type bootstrap struct {
	suite    string // an alias such as "stable" is resolved by the mirror
	packages []string
}

const mebibyte = 1 << 20

// definitions returns the catalog. baseImage is the reference base:latest is
// pulled from; empty leaves the bootstrap as the only way.
func definitions(baseImage string) []definition {
	return []definition{
		{
			meta: sandbox.Runtime{
				ID:           BaseID,
				Name:         "base:latest",
				Description:  "A clean Debian stable with the essentials: bash, coreutils, apt, curl, certificates. The place to start from.",
				IconURL:      "https://www.debian.org/Pics/openlogo-50.png",
				BrandColor:   "#A80030",
				URL:          "https://www.debian.org/",
				Tags:         []string{"base", "debian", "linux"},
				Requirements: sandbox.Limits{MemoryBytes: 128 * mebibyte, CPUMillis: 100, DiskBytes: 256 * mebibyte},
			},
			image: baseImage,
			bootstrap: &bootstrap{
				suite:    "stable",
				packages: []string{"ca-certificates", "curl", "less", "netbase", "procps"},
			},
		},
		{
			meta: sandbox.Runtime{
				ID:           HostID,
				Name:         "host:latest",
				Description:  "The programs of this very machine, read-only, with none of its files or secrets. Nothing to download.",
				IconURL:      "https://www.kernel.org/theme/images/logos/tux.png",
				BrandColor:   "#4C566A",
				URL:          "https://github.com/sandgate/sandgate",
				Tags:         []string{"host", "linux", "offline"},
				Requirements: sandbox.Limits{MemoryBytes: 128 * mebibyte, CPUMillis: 100, DiskBytes: 128 * mebibyte},
			},
			host: true,
		},
	}
}

// find returns the definition that a name, a name without its tag, or an id
// stands for. The empty string is the default runtime.
func (c *Catalog) find(nameOrID string) (definition, error) {
	want := nameOrID
	if want == "" {
		want = c.cfg.Default
	}
	full := want
	if !strings.Contains(want, ":") {
		full = want + ":latest"
	}
	for _, d := range c.defs {
		if d.meta.ID == want || d.meta.Name == full {
			return d, nil
		}
	}
	return definition{}, unknownRuntime(want, c.names())
}

func (c *Catalog) names() []string {
	names := make([]string, 0, len(c.defs))
	for _, d := range c.defs {
		names = append(names, d.meta.Name)
	}
	slices.Sort(names)
	return names
}
