package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// pipeSize is the buffer of a stream in each direction: much more throughput
// than the default of 64 KiB. Unprivileged users have a budget for such
// buffers; beyond it the default stays.
const pipeSize = 1 << 20

// Dial implements driver.Driver. The stream is a pair of pipes: in gVisor they
// are faster than a socket pair, and a memory checkpoint survives them.
func (d *Driver) Dial(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	if _, err := d.inspectRunning(ctx, id); err != nil {
		return nil, err
	}
	if err := d.endLostHold(ctx, d.box(id)); err != nil {
		return nil, dialFault(err, id)
	}
	theirIn, ourOut, err := makePipe(false)
	if err != nil {
		return nil, dialFault(err, id)
	}
	defer theirIn.Close()
	ourIn, theirOut, err := makePipe(true)
	if err != nil {
		ourOut.Close()
		return nil, dialFault(err, id)
	}
	defer theirOut.Close()
	pid, err := d.execRelay(ctx, id, theirIn, theirOut)
	if err != nil {
		ourIn.Close()
		ourOut.Close()
		return nil, dialFault(err, id)
	}
	return &stream{in: ourIn, out: ourOut, end: func() { d.reapRelay(id, pid) }}, nil
}

func dialFault(err error, id string) error {
	if errors.Is(err, errDown) {
		return notRunning(id)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.From(err)
	}
	return fault.Wrap(err, fault.Unavailable, "sandbox %s does not answer", id).About("sandbox")
}

// execRelay runs the relay inside the sandbox, as root with the capabilities
// of PID 1: without a set it would get all there are. It returns its process
// id there.
func (d *Driver) execRelay(ctx context.Context, id string, in, out *os.File) (int32, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("open the null device: %w", err)
	}
	defer null.Close()
	caps, err := specutils.Capabilities(false, ociCapabilities)
	if err != nil {
		return 0, fmt.Errorf("convert capabilities: %w", err)
	}
	payload := control.NewFilePayload(map[int]*os.File{0: in, 1: out, 2: null}, nil)
	args := control.ExecArgs{
		Argv:             []string{driver.GuestPath, "relay"},
		WorkingDirectory: "/",
		ContainerID:      id,
		Capabilities:     caps,
		FilePayload:      payload,
	}
	var pid int32
	err = d.call(ctx, id, boot.ContMgrExecuteAsync, &args, &pid, payload.Files...)
	return pid, err
}

// reapRelay ends the relay of a closed stream and collects its exit status,
// which the sentry keeps until somebody asks for it.
func (d *Driver) reapRelay(id string, pid int32) {
	d.background(func() {
		ctx, cancel := context.WithTimeout(d.ctx, 10*time.Second)
		defer cancel()
		signal := boot.SignalArgs{CID: id, PID: pid, Signo: int32(unix.SIGKILL), Mode: boot.DeliverToProcess}
		if err := d.call(ctx, id, boot.ContMgrSignal, &signal, nil); errors.Is(err, errDown) {
			return
		}
		wait := boot.WaitPIDArgs{PID: pid, CID: id}
		var status uint32
		if err := d.call(ctx, id, boot.ContMgrWaitPID, &wait, &status); err != nil && !errors.Is(err, errDown) {
			d.log.Debug("collect a relay", "sandbox", id, "pid", pid, "error", err)
		}
	})
}

// makePipe makes a pipe of which one end, the reading one if weRead, belongs
// to this process and is non-blocking, while the other goes to the sandbox.
func makePipe(weRead bool) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	ours := fds[1]
	if weRead {
		ours = fds[0]
	}
	err = unix.SetNonblock(ours, true)
	_, _ = unix.FcntlInt(uintptr(ours), unix.F_SETPIPE_SZ, pipeSize)
	r, w = os.NewFile(uintptr(fds[0]), "relay"), os.NewFile(uintptr(fds[1]), "relay")
	if err != nil {
		r.Close()
		w.Close()
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	return r, w, nil
}

// stream is the host's end of a relay.
type stream struct {
	in, out *os.File
	once    sync.Once
	end     func()
	err     error
}

func (s *stream) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.out.Write(p) }

func (s *stream) Close() error {
	s.once.Do(func() {
		s.err = errors.Join(s.in.Close(), s.out.Close())
		s.end()
	})
	return s.err
}
