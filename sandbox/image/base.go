package image

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// attempt is a way to make a runtime that did not work, for the message.
type attempt struct {
	reason string // a clause for a person
	next   string // what would help; may be empty
	cause  error
}

// fill makes the tree of a runtime: from its image when a registry answers,
// from Debian packages otherwise. It says which, and why not the other.
func (c *Catalog) fill(ctx context.Context, d definition, b *build, say func(string)) (Layer, error) {
	var tried []attempt
	for _, way := range []func(context.Context, definition, *build, func(string)) (Layer, *attempt, error){c.fromImage, c.fromPackages} {
		l, miss, err := way(ctx, d, b, say)
		if err == nil && miss == nil {
			return l, nil
		}
		if ctx.Err() != nil {
			return Layer{}, c.ended(ctx, d)
		}
		if err == nil {
			err = miss.cause
		}
		if diskFull(err) {
			return Layer{}, c.diskFullError(err, d)
		}
		if miss == nil {
			return Layer{}, c.hostTrouble(ctx, err, d)
		}
		if miss.reason != "" {
			c.cfg.Log.Warn("a way to make a runtime did not work", "runtime", d.meta.Name, "reason", miss.reason, "err", miss.cause)
			say(miss.reason)
			tried = append(tried, *miss)
		}
		if err := b.reset(); err != nil {
			return Layer{}, c.hostTrouble(ctx, err, d)
		}
	}
	return Layer{}, cannotMake(d, tried)
}

// ended is the error of a build that was cancelled or took too long.
func (c *Catalog) ended(ctx context.Context, d definition) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.Wrap(ctx.Err(), fault.Timeout, "making %s took longer than %s", d.meta.Name, c.cfg.BuildTimeout)
	}
	return fault.From(ctx.Err())
}

func cannotMake(d definition, tried []attempt) error {
	var reasons, nexts []string
	var causes []error
	for _, t := range tried {
		reasons = append(reasons, t.reason)
		causes = append(causes, t.cause)
		if t.next != "" {
			nexts = append(nexts, t.next)
		}
	}
	nexts = append(nexts, "use --runtime host:latest")
	return fault.Wrap(errors.Join(causes...), fault.Unavailable, "%s cannot be made here: %s; %s",
		d.meta.Name, strings.Join(reasons, ", and "), strings.Join(nexts, ", or ")).About("runtime")
}

// fromImage pulls the runtime's OCI image.
func (c *Catalog) fromImage(ctx context.Context, d definition, b *build, say func(string)) (Layer, *attempt, error) {
	if d.image == "" {
		return Layer{}, &attempt{}, nil
	}
	ref, err := name.ParseReference(d.image)
	if err != nil {
		return Layer{}, &attempt{reason: fmt.Sprintf("%q is no image reference", d.image), cause: err}, nil
	}
	r := newRegistry(c.cfg.ProbeTimeout)
	defer r.close()
	host := ref.Context().RegistryStr()
	say("asking " + host + " for " + ref.Context().RepositoryStr() + ":" + ref.Identifier())
	digest, err := r.probe(ctx, ref)
	if err != nil {
		reason := fmt.Sprintf("%s did not answer for %s within %s", host, ref.Context().RepositoryStr(), c.cfg.ProbeTimeout)
		if refusal, ok := errors.AsType[*transport.Error](err); ok {
			reason = fmt.Sprintf("%s does not give %s (HTTP %d)", host, ref.Context().RepositoryStr(), refusal.StatusCode)
		}
		return Layer{}, &attempt{reason: reason, cause: err}, nil
	}
	x, err := newExtractor(b.root, c.cfg.Unprivileged, c.cfg.Bounds)
	if err != nil {
		return Layer{}, nil, err
	}
	defer x.close()
	if err := r.pull(ctx, ref, digest, x, say); err != nil {
		why := "was cut off"
		if errors.Is(err, errHostile) {
			why = "was refused because of what is in it"
		} else if isMismatch(err) {
			why = "does not match its digest"
		}
		return Layer{}, &attempt{reason: fmt.Sprintf("the image from %s %s", host, why), cause: err}, nil
	}
	if err := checkShell(b.root); err != nil {
		return Layer{}, &attempt{reason: "the image from " + host + " has no /bin/sh", cause: err}, nil
	}
	return Layer{Source: "oci:" + d.image, SourceDigest: digest.String()}, nil, nil
}

// isMismatch reports whether what came is not what the digest promised. The
// registry library has no error values for it.
func isMismatch(err error) bool {
	text := err.Error()
	return errors.Is(err, gzip.ErrChecksum) || strings.Contains(text, "error verifying") || strings.Contains(text, "does not match expected size")
}

// fromPackages bootstraps the runtime from a Debian mirror.
func (c *Catalog) fromPackages(ctx context.Context, d definition, b *build, say func(string)) (Layer, *attempt, error) {
	if d.bootstrap == nil {
		return Layer{}, &attempt{}, nil
	}
	program, err := findTool(c.cfg.Mmdebstrap)
	if err != nil {
		return Layer{}, &attempt{reason: "mmdebstrap is not installed", next: "run apt-get install mmdebstrap", cause: err}, nil
	}
	asRoot := os.Geteuid() == 0
	if !asRoot {
		if why := unshareTrouble(); why != "" {
			return Layer{}, &attempt{reason: why, cause: errors.New(why)}, nil
		}
	}
	scratch, err := c.scratchFor(b)
	if err != nil {
		return Layer{}, nil, fmt.Errorf("make a scratch directory: %w", err)
	}
	apt := c.hostApt(ctx)
	mirrors := newMirrorClient(apt)
	defer mirrors.close()
	base, security := c.mirrors(apt)
	suites := c.suites(d.bootstrap.suite)
	var miss *attempt
	for i, suite := range suites {
		rel, err := mirrors.release(ctx, base, suite)
		if err != nil {
			miss = &attempt{reason: fmt.Sprintf("the Debian mirror %s does not answer for %s", base, suite), next: "give another mirror", cause: err}
			continue
		}
		job := bootstrapJob{
			program: program, suite: rel.codename, packages: d.bootstrap.packages, date: rel.date,
			apt: apt, scratch: scratch, asRoot: asRoot, grace: c.cfg.KillGrace, sources: sourceLines(ctx, mirrors, base, security, rel.codename),
		}
		say(fmt.Sprintf("bootstrapping Debian %s from %s", rel.codename, base))
		err = c.runBootstrap(ctx, job, b, say)
		if err == nil {
			return Layer{
				Source: "debian bootstrap " + rel.codename, Mirror: base, SourceDigest: releaseStamp(rel),
				Packages: slices.Clone(d.bootstrap.packages),
			}, nil, nil
		}
		said, ok := errors.AsType[*bootstrapError](err)
		if !ok {
			return Layer{}, nil, err
		}
		if said.says("No space left on device", "Disk quota exceeded") {
			return Layer{}, nil, fmt.Errorf("%w: %w", unix.ENOSPC, err)
		}
		miss = &attempt{reason: fmt.Sprintf("mmdebstrap could not make Debian %s (%s)", rel.codename, said.summary()), cause: err}
		if !said.says("NO_PUBKEY", "not signed", "Missing key", "no keyring", "verification failed") {
			break
		}
		miss.next = "run apt-get install debian-archive-keyring"
		if i+1 < len(suites) {
			say(fmt.Sprintf("this machine has no key for Debian %s; trying its own suite, %s", rel.codename, suites[i+1]))
		}
		if err := b.reset(); err != nil {
			return Layer{}, nil, err
		}
	}
	return Layer{}, miss, nil
}

// runBootstrap unpacks what mmdebstrap makes into the build's tree.
func (c *Catalog) runBootstrap(ctx context.Context, job bootstrapJob, b *build, say func(string)) error {
	x, err := newExtractor(b.root, c.cfg.Unprivileged, c.cfg.Bounds)
	if err != nil {
		return err
	}
	defer x.close()
	err = job.run(ctx, func(r io.Reader) error { return x.layer(ctx, r, false) }, say)
	if err != nil {
		return err
	}
	if err := checkShell(b.root); err != nil {
		return &bootstrapError{err: err, lines: []string{"E: the result has no /bin/sh"}}
	}
	return nil
}

// mirrors returns the mirror to bootstrap from and the one for its security
// updates.
func (c *Catalog) mirrors(apt aptSettings) (base, security string) {
	base, security = c.cfg.Mirror, ""
	if base == "" {
		base, security = apt.mirror, apt.security
	}
	orDefault(&base, defaultMirror)
	if root, ok := strings.CutSuffix(base, "/debian"); ok {
		orDefault(&security, root+"/debian-security")
	}
	return base, security
}

// suites lists what to try: the recipe's suite, and the host's own when this
// is a Debian, because its keys are here for certain.
func (c *Catalog) suites(want string) []string {
	out := []string{want}
	osr := c.osRelease()
	if own := osr["VERSION_CODENAME"]; osr["ID"] == "debian" && own != want && codenamePattern.MatchString(own) {
		out = append(out, own)
	}
	return out
}

// sourceLines are the lines of sources.list: the suite itself, and its updates
// where the mirrors have them.
func sourceLines(ctx context.Context, m *mirrorClient, base, security, codename string) []string {
	lines := []string{"deb " + base + " " + codename + " main"}
	add := func(mirror, suite string) {
		if mirror == "" {
			return
		}
		if _, err := m.release(ctx, mirror, suite); err == nil {
			lines = append(lines, "deb "+mirror+" "+suite+" main")
		}
	}
	add(base, codename+"-updates")
	add(security, codename+"-security")
	return lines
}

func releaseStamp(r release) string {
	if r.date.IsZero() {
		return ""
	}
	return "release of " + r.date.UTC().Format(time.DateOnly)
}

func readyLine(runtime string, l Layer, took time.Duration) string {
	return fmt.Sprintf("%s is ready: %s, %s in %d files, made in %.1f s", runtime, l.Source, size(l.Size), l.Files, took.Seconds())
}
