package fake

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Config is what a Driver depends on.
type Config struct {
	// Host is where the sandboxes live. Nil means one of the driver's own,
	// which goes with Close.
	Host *Host
	// State tells apart what different state folders own on one Host.
	State string
	// Unsupported maps features (driver.Feature…) that this driver cannot do
	// to the reason it gives.
	Unsupported map[string]string
}

// Driver implements driver.Driver on a Host.
type Driver struct {
	host    *Host
	ownHost bool
	cfg     Config
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Stats  = (*Driver)(nil)
)

// New returns a driver.
func New(cfg Config) *Driver {
	d := &Driver{host: cfg.Host, cfg: cfg}
	if d.host == nil {
		d.host, d.ownHost = NewHost(), true
	}
	return d
}

// Host returns the machine on which the driver's sandboxes live.
func (d *Driver) Host() *Host { return d.host }

// Name implements driver.Driver.
func (d *Driver) Name() string { return "fake" }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	if d.ownHost {
		return d.host.Close()
	}
	return nil
}

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	if err := d.host.enter(ctx, Capabilities); err != nil {
		return driver.Capabilities{}, err
	}
	return driver.Capabilities{Driver: d.Name(), Version: "1", Mode: "in memory", Support: d.support()}, nil
}

func (d *Driver) support() map[string]driver.Support {
	support := make(map[string]driver.Support)
	for _, feature := range driver.Features() {
		support[feature] = driver.Support{OK: true, Reason: "accepted, not enforced"}
	}
	support[driver.FeatureCheckpoint] = driver.Support{OK: true, Reason: "processes are kept stopped"}
	support[driver.FeatureSave] = driver.Support{OK: true, Reason: "of the workspace"}
	for feature, reason := range d.cfg.Unsupported {
		support[feature] = driver.Support{Reason: reason}
	}
	return support
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, s driver.Spec) error {
	if err := d.host.enter(ctx, Create); err != nil {
		return err
	}
	if err := s.Validate(); err != nil {
		return err
	}
	support := d.support()
	for feature, wanted := range map[string]bool{
		driver.FeatureMemoryLimit:  s.Limits.MemoryBytes > 0,
		driver.FeatureCPULimit:     s.Limits.CPUMillis > 0,
		driver.FeatureDiskLimit:    s.Limits.DiskBytes > 0,
		driver.FeatureProcessLimit: s.Limits.Processes > 0,
		driver.FeatureHostDirs:     len(s.Rootfs.HostDirs) > 0,
		driver.FeatureSave:         len(s.Rootfs.Saved) > 0,
		driver.FeatureNetwork:      s.Network,
	} {
		if wanted && !support[feature].OK {
			return fault.New(fault.Unsupported, "%s: %s", feature, support[feature].Reason)
		}
	}
	s.Labels = maps.Clone(s.Labels)
	s.Rootfs.Saved = slices.Clone(s.Rootfs.Saved)
	k := key{d.cfg.State, s.ID}
	dir, err := d.host.folder(k)
	if err == nil {
		err = furnish(dir)
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the fake host cannot make a folder")
	}
	b := &box{
		host: d.host, spec: s, dir: dir, lock: make(chan struct{}, 1),
		usage: driver.Usage{MemoryBytes: 16 << 20, CPU: time.Millisecond, Processes: 1, DiskBytes: -1},
	}
	if err := b.layDown(ctx, s.Rootfs.Saved); err != nil {
		return fault.From(errors.Join(err, removeTree(dir)))
	}
	d.host.mu.Lock()
	_, taken := d.host.boxes[k]
	if !taken {
		d.host.boxes[k] = b
	}
	d.host.mu.Unlock()
	if taken {
		if err := removeTree(dir); err != nil {
			return fault.Wrap(err, fault.Internal, "the fake host cannot delete a folder")
		}
		return fault.New(fault.Exists, "sandbox %s exists", s.ID).About("sandbox")
	}
	return nil
}

// enter is the beginning of a method that needs a feature.
func (d *Driver) enter(ctx context.Context, op Op, feature string) error {
	if err := d.host.enter(ctx, op); err != nil {
		return err
	}
	if s := d.support()[feature]; !s.OK {
		return fault.New(fault.Unsupported, "%s: %s", feature, s.Reason)
	}
	return nil
}

// lookup returns a sandbox of this driver's state.
func (d *Driver) lookup(id string) (*box, error) {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	b := d.host.boxes[key{d.cfg.State, id}]
	if b == nil {
		return nil, fault.New(fault.NotFound, "there is no sandbox %.64q", id).About("sandbox")
	}
	return b, nil
}

// locked runs f while no other operation on the sandbox is under way.
func (d *Driver) locked(ctx context.Context, id string, f func(*box) error) error {
	b, err := d.lookup(id)
	if err != nil {
		return err
	}
	select {
	case b.lock <- struct{}{}:
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
	defer func() { <-b.lock }()
	// It may have been removed while this call waited.
	if again, err := d.lookup(id); err != nil || again != b {
		return fault.New(fault.NotFound, "there is no sandbox %.64q", id).About("sandbox")
	}
	return f(b)
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, id string) error {
	if err := d.host.enter(ctx, Start); err != nil {
		return err
	}
	return d.locked(ctx, id, func(b *box) error {
		switch b.status().State {
		case driver.Broken:
			return fault.New(fault.State, "sandbox %s is broken; it can only be removed", id).About("sandbox")
		case driver.Created, driver.Stopped:
			b.boot()
		case driver.Running:
		}
		return nil
	})
}

// Dial implements driver.Driver.
func (d *Driver) Dial(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	if err := d.host.enter(ctx, Dial); err != nil {
		return nil, err
	}
	b, err := d.lookup(id)
	if err != nil {
		return nil, err
	}
	s, ok := b.open()
	if !ok {
		return nil, fault.New(fault.State, "sandbox %s does not run", id).About("sandbox")
	}
	return s, nil
}

// Stop implements driver.Driver. Like the real ones it lets a Stop with less
// grace, or a Remove, overtake it.
func (d *Driver) Stop(ctx context.Context, id string, grace time.Duration) error {
	if err := d.host.enter(ctx, Stop); err != nil {
		return err
	}
	b, err := d.lookup(id)
	if err != nil {
		return err
	}
	r := b.current()
	if r == nil {
		return d.locked(ctx, id, func(b *box) error {
			b.discardImage()
			return nil
		})
	}
	if grace > 0 {
		go r.agent.Shutdown() // ends with the run, which Host.Close waits for
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-r.over:
			return nil
		case <-ctx.Done():
			return fault.From(ctx.Err())
		case <-timer.C:
		}
	}
	r.kill()
	<-r.over
	return nil
}

// Remove implements driver.Driver.
func (d *Driver) Remove(ctx context.Context, id string) error {
	if err := d.host.enter(ctx, Remove); err != nil {
		return err
	}
	err := d.locked(ctx, id, func(b *box) error {
		b.die(driver.Exit{Reason: "removed"})
		b.discardImage()
		if err := removeTree(b.dir); err != nil {
			return fault.Wrap(err, fault.Internal, "the fake host cannot delete a folder")
		}
		d.host.mu.Lock()
		defer d.host.mu.Unlock()
		delete(d.host.boxes, key{d.cfg.State, id})
		return nil
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
