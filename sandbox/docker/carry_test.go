package docker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/driver/drivertest"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/gvisor"
	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
	"github.com/sandgate/sandgate/sandbox/image"
	"github.com/sandgate/sandgate/sandbox/layer"
	"github.com/sandgate/sandgate/sandbox/netd/netdtest"
	"github.com/sandgate/sandgate/sandbox/store"
)

// TestMain deletes the program that gVisor sandboxes run as.
func TestMain(m *testing.M) {
	if netdtest.IsDaemon() {
		netdtest.Daemon()
	}
	code := m.Run()
	if err := gvisortest.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// server is an engine with its own state and images, on some driver.
type server struct {
	t *testing.T
	*sandbox.Actor
}

// catalog is one with the runtime tiny:1 where digest names its files.
type catalog struct {
	*image.Catalog
	digest string
}

func (c catalog) Provide(ctx context.Context, name string, progress func(string)) (sandbox.Runtime, sandbox.Rootfs, error) {
	if c.digest == "" || name != "tiny:1" {
		return c.Catalog.Provide(ctx, name, progress)
	}
	rt := sandbox.Runtime{ID: "srt_tiny", Name: name, Digest: c.digest}
	rootfs, err := c.ProvideDigest(ctx, sandbox.RuntimeRef{ID: rt.ID, Name: name, Digest: c.digest})
	return rt, rootfs, err
}

// serve makes a server; base are the files of its tiny:1, empty for none.
func serve(t *testing.T, base string, open func(state string, log *slog.Logger) driver.Driver) server {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	d := open(dir, log)
	t.Cleanup(func() { d.Close() })
	files, err := image.New(image.Config{Dir: filepath.Join(dir, "layers"), BaseImage: image.NoImage})
	must(t, err)
	t.Cleanup(func() { files.Close() })
	images := catalog{Catalog: files}
	if base != "" {
		r, w := io.Pipe()
		go func() { w.CloseWithError(layer.WriteOverlay(t.Context(), base, w, layer.Options{})) }()
		images.digest, err = files.ImportRuntime(t.Context(), sandbox.RuntimeRef{ID: "srt_tiny"}, r, 1<<30)
		must(t, err)
	}
	st, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "state", "state.db")})
	must(t, err)
	t.Cleanup(func() { st.Close() })
	e, err := sandbox.NewEngine(t.Context(), sandbox.Config{
		Driver: d, Store: st, Images: images, Guest: driver.Guest{Path: drivertest.BuildGuest(t)},
		OutputDir: filepath.Join(dir, "executions"), DefaultRuntime: "tiny:1", Log: log,
	})
	must(t, err)
	s := server{t, e.As(keys.Principal{ID: "alice", Role: keys.Member})}
	t.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		live, _, err := s.List(ctx, sandbox.ListRequest{LiveOnly: true})
		must(t, err)
		for _, sb := range live {
			must(t, s.Delete(ctx, sb.ID))
		}
		kept, _, err := s.Snapshots(ctx, sandbox.SnapshotFilter{})
		must(t, err)
		for _, p := range kept {
			if err := s.DeleteSnapshot(ctx, p.ID, true); err != nil && !fault.Is(err, fault.NotFound) {
				t.Error(err)
			}
		}
		e.Close()
	})
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (%v)", err, fault.From(err).Cause)
	}
}

// sh runs a script in a sandbox and returns what it prints.
func (s server) sh(ref, script string) string {
	s.t.Helper()
	x, err := s.Execute(s.t.Context(), ref, sandbox.ExecRequest{Command: []string{"sh", "-c", script + " 2>&1"}})
	must(s.t, err)
	x, err = s.Execution(s.t.Context(), x.ID, time.Minute)
	must(s.t, err)
	var out bytes.Buffer
	must(s.t, s.Output(s.t.Context(), x.ID, sandbox.Stdout, &out))
	return out.String()
}

// carry exports the snapshot of one server and imports it into another.
func carry(from, to server, snapshot string) []byte {
	from.t.Helper()
	var archive bytes.Buffer
	must(from.t, from.ExportSnapshot(from.t.Context(), snapshot, &archive))
	content := bytes.Clone(archive.Bytes())
	p, err := to.ImportSnapshot(from.t.Context(), &archive, sandbox.SnapshotRequest{})
	must(from.t, err)
	if p.Tag != snapshot {
		from.t.Errorf("it became %+v", p)
	}
	return content
}

// TestSnapshotsCrossEngines: a snapshot made on gVisor starts here, and one
// made of that starts on gVisor, with what was added and deleted on either
// side, set-user-id bits, owners and links.
func TestSnapshotsCrossEngines(t *testing.T) {
	cli := engine(t)
	for _, runtime := range []string{"tiny:1", "host:latest"} {
		t.Run(runtime, func(t *testing.T) {
			base := drivertest.BusyboxLayer(t)
			onGVisor := func(state string, log *slog.Logger) driver.Driver {
				d, err := gvisor.New(gvisor.Config{StateDir: filepath.Join(state, "gvisor"), Log: log, Executable: gvisortest.Executable(t)})
				must(t, err)
				if u := usable(d); u != "" {
					t.Skip(u)
				}
				return d
			}
			a := serve(t, base, onGVisor)
			b := serve(t, "", func(state string, log *slog.Logger) driver.Driver {
				t.Cleanup(func() { purge(t, filepath.Join(state, "docker")) })
				return open(t, docker.Config{StateDir: filepath.Join(state, "docker"), Log: log})
			})
			c := serve(t, "", onGVisor)

			_, err := a.Create(t.Context(), sandbox.CreateRequest{Name: "one", Runtime: runtime})
			must(t, err)
			a.sh("one", "echo first > a; ln a hard; ln -s a link; echo x > /etc/added; rm /etc/hostname.none; mkdir -p d/e; echo 1 > d/e/f; chmod 4755 a; chown 12:34 link")
			_, err = a.CreateSnapshot(t.Context(), "one", sandbox.SnapshotRequest{Tag: "low"})
			must(t, err)
			_, err = a.Create(t.Context(), sandbox.CreateRequest{Name: "two", Snapshot: "low"})
			must(t, err)
			a.sh("two", "rm -r d; echo second > b")
			_, err = a.CreateSnapshot(t.Context(), "two", sandbox.SnapshotRequest{Name: "tools", Tag: "v1"})
			must(t, err)

			archive := carry(a, b, "v1")
			_, err = b.Create(t.Context(), sandbox.CreateRequest{Name: "three", Snapshot: "v1"})
			must(t, err)
			const look = "cat a hard link b /etc/added; ls -d d; stat -c '%a %u %h' a"
			want := a.sh("two", look)
			if got := b.sh("three", look); got != want || !strings.HasPrefix(got, "first\nfirst\nfirst\nsecond\nx\n") {
				t.Errorf("on Docker it has\n%s\nwant\n%s", got, want)
			}
			b.sh("three", "rm b; echo third > c; mkdir d; echo new > d/g")
			_, err = b.CreateSnapshot(t.Context(), "three", sandbox.SnapshotRequest{Tag: "v2"})
			must(t, err)
			carry(b, c, "v2")
			_, err = c.Create(t.Context(), sandbox.CreateRequest{Name: "four", Snapshot: "v2"})
			must(t, err)
			const again = "cat a link c /etc/added; ls b; ls d; stat -c '%a %u %h' a"
			want = b.sh("three", again)
			if got := c.sh("four", again); got != want || !strings.Contains(got, "third") {
				t.Errorf("back on gVisor it has\n%s\nwant\n%s", got, want)
			}
			if runtime == "tiny:1" {
				loads(t, cli, archive)
			}
		})
	}
}

// usable says why gVisor cannot run here.
func usable(d *gvisor.Driver) string {
	caps, err := d.Capabilities(context.Background())
	if err != nil {
		return err.Error()
	}
	if s := caps.Support[driver.FeatureSave]; !s.OK {
		return s.Reason
	}
	return ""
}

// loads checks that docker load takes the archive for an image that runs.
func loads(t *testing.T, cli *client.Client, archive []byte) {
	t.Helper()
	const name = "sandgate/tools:v1"
	answer, err := cli.ImageLoad(t.Context(), bytes.NewReader(archive))
	must(t, err)
	said, err := io.ReadAll(answer)
	must(t, err)
	answer.Close()
	if !strings.Contains(string(said), name) {
		t.Errorf("docker load says %s", said)
	}
	info, err := cli.ImageInspect(t.Context(), name)
	must(t, err)
	if len(info.RootFS.Layers) != 3 || info.Config.WorkingDir != "/workspace" {
		t.Errorf("%+v", info.RootFS)
	}
	_, err = cli.ImageRemove(t.Context(), name, client.ImageRemoveOptions{})
	must(t, err)
}
