package image

import (
	"context"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Defaults of Config.
const (
	DefaultRuntime   = "base:latest"
	DefaultBaseImage = "docker.io/library/debian:stable-slim"

	// NoImage as Config.BaseImage means that no registry is asked.
	NoImage = "none"
)

// Config is what a Catalog depends on. Only Dir is required.
type Config struct {
	// Dir keeps the layers. It is made with mode 0700 when missing: a layer
	// holds set-user-id programs that no other user of the host may reach.
	Dir string
	// Default is the runtime that the empty name stands for.
	Default string
	// HostRoot is the root directory whose programs and settings are used;
	// "/" but for tests.
	HostRoot string
	// BaseImage is the OCI reference base:latest is pulled from, or NoImage.
	BaseImage string
	// Mirror is the Debian mirror (http or https). Empty: the one the host's
	// apt uses, or else deb.debian.org.
	Mirror string
	// Mmdebstrap is the program that bootstraps Debian; a name is looked up
	// in the usual directories.
	Mmdebstrap string
	// Scratch is where mmdebstrap works. Empty: /var/tmp, the usual temporary
	// directory or Dir, whichever is fit first.
	Scratch string
	// Unprivileged means that files keep the owner of this process, because
	// it may give them no other. It is always so for a process that is not root.
	Unprivileged bool
	// ProbeTimeout bounds how long a registry may take to answer at all.
	ProbeTimeout time.Duration
	// BuildTimeout bounds the making of one runtime.
	BuildTimeout time.Duration
	// KillGrace is how long a cancelled bootstrap has to clean up by itself.
	KillGrace time.Duration
	// Bounds limit what an archive may contain.
	Bounds Bounds
	// InUse reports which sandboxes use which layer, by digest, so that
	// Remove can refuse. Without it Remove refuses always.
	InUse func(ctx context.Context) (map[string][]string, error)

	Log *slog.Logger
	Now func() time.Time
}

// Catalog is the set of runtimes this host can have, and the keeper of their
// files. It is safe for concurrent use, and several processes may share Dir.
type Catalog struct {
	cfg    Config
	defs   []definition
	layers *layerStore

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	builds sync.WaitGroup

	mu       sync.Mutex
	flights  map[string]*flight // by runtime id
	plan     *skeletonPlan      // the present skeleton was made from it
	skeleton Layer
}

var _ sandbox.RootfsProvider = (*Catalog)(nil)

// New opens the catalog on cfg.Dir and removes what builds of dead processes
// left there.
func New(cfg Config) (*Catalog, error) {
	if cfg.Dir == "" {
		return nil, fault.InvalidField("dir", "a directory for layers is required")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "%s is not a usable directory for layers", cfg.Dir)
	}
	cfg.Dir = dir
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	orDefault(&cfg.Default, DefaultRuntime)
	orDefault(&cfg.HostRoot, "/")
	orDefault(&cfg.BaseImage, DefaultBaseImage)
	orDefault(&cfg.Mmdebstrap, "mmdebstrap")
	orDefault(&cfg.ProbeTimeout, 3*time.Second)
	orDefault(&cfg.BuildTimeout, 20*time.Minute)
	orDefault(&cfg.KillGrace, 5*time.Second)
	cfg.Bounds = cfg.Bounds.orDefaults()
	if os.Geteuid() != 0 {
		cfg.Unprivileged = true
	}
	if cfg.BaseImage == NoImage {
		cfg.BaseImage = ""
	}
	if cfg.Mirror != "" {
		if cfg.Mirror, err = checkMirror(cfg.Mirror); err != nil {
			return nil, err
		}
	}

	c := &Catalog{cfg: cfg, defs: definitions(cfg.BaseImage), flights: make(map[string]*flight)}
	if _, err := c.find(""); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the default runtime is not in the catalog: %v", err)
	}
	c.layers, err = openLayerStore(cfg)
	if err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Close ends builds that are under way and waits until they have cleaned up.
func (c *Catalog) Close() error {
	c.mu.Lock() // no build starts between the cancel and the wait
	c.cancel()
	c.mu.Unlock()
	c.builds.Wait()
	return nil
}

// Runtimes returns the catalog. Ready says that nothing needs to be fetched.
func (c *Catalog) Runtimes(ctx context.Context) ([]sandbox.Runtime, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault.From(err)
	}
	out := make([]sandbox.Runtime, 0, len(c.defs))
	for _, d := range c.defs {
		out = append(out, c.describe(d))
	}
	return out, nil
}

// describe fills in what is known about a runtime on this host now.
func (c *Catalog) describe(d definition) sandbox.Runtime {
	rt := d.meta
	rt.Tags = append([]string(nil), d.meta.Tags...)
	switch {
	case d.host:
		rt.Source = c.hostSource()
		rt.Ready = c.hostUsable() == nil
	default:
		if l, ok := c.layers.current(d.meta.ID); ok {
			rt.Ready, rt.Source, rt.Digest = true, l.Source, l.Digest
			return rt
		}
		rt.Source = c.wouldComeFrom(d)
	}
	return rt
}

func (c *Catalog) wouldComeFrom(d definition) string {
	var ways []string
	if d.image != "" {
		ways = append(ways, "oci:"+d.image)
	}
	if d.bootstrap != nil {
		ways = append(ways, "debian bootstrap "+d.bootstrap.suite)
	}
	return strings.Join(ways, ", or ")
}

// Choice is a runtime and the reason it was chosen.
type Choice struct {
	Runtime string
	Reason  string // one sentence for a person; empty when it needs no explanation
}

// Pick chooses a runtime for somebody who asked for none and does not want to
// wait: the default where its files are here already, and otherwise host:latest
// when the driver can show host directories. It makes nothing.
func (c *Catalog) Pick(ctx context.Context, hostDirs bool) (Choice, error) {
	if err := ctx.Err(); err != nil {
		return Choice{}, fault.From(err)
	}
	d, err := c.find("")
	if err != nil {
		return Choice{}, err
	}
	name := d.meta.Name
	if c.describe(d).Ready {
		return Choice{Runtime: name}, nil
	}
	const needs = "is not on this machine yet, and making it needs a container registry or a Debian mirror"
	if err := c.hostUsable(); err != nil {
		return Choice{Runtime: name, Reason: name + " " + needs + "; trying that, because host:latest does not work here: " + err.Error()}, nil
	}
	if !hostDirs {
		return Choice{Runtime: name, Reason: name + " " + needs + "; trying that, because this engine cannot show host:latest"}, nil
	}
	return Choice{
		Runtime: "host:latest",
		Reason:  name + " " + needs + "; using host:latest, this machine's own programs",
	}, nil
}

// checkMirror returns the mirror in the form that goes into apt's sources.
// White space and brackets would change the meaning of such a line.
func checkMirror(mirror string) (string, error) {
	u, err := url.Parse(mirror)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" ||
		strings.ContainsAny(mirror, " \t\r\n[]\"'\\") {
		return "", fault.InvalidField("mirror", "%q is no Debian mirror; write it as http://deb.debian.org/debian", mirror)
	}
	return strings.TrimRight(mirror, "/"), nil
}

// exists reports whether path is there, as far as this process can tell.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// hostPath is a path below the host's root.
func (c *Catalog) hostPath(elem ...string) string {
	return filepath.Join(append([]string{c.cfg.HostRoot}, elem...)...)
}

// isRealDir reports whether path is a directory and no symbolic link to one.
func isRealDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode()&fs.ModeType == fs.ModeDir
}
