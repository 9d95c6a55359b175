package netd

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

const (
	callTimeout = 10 * time.Second // for the question to arrive, and the answer to leave
	maxWait     = time.Minute
	maxCalls    = 256 // at once
)

// Info is what a daemon says of itself.
type Info struct {
	Build  string `json:"build"` // of the program
	PID    int    `json:"pid"`
	Format int    `json:"format"` // of its handover

	Goroutines int `json:"goroutines"`
}

// Status is one sandbox as the daemon sees it.
type Status struct {
	ID          string   `json:"id"`
	Connected   bool     `json:"connected"` // what it sends arrives
	Foreign     bool     `json:"foreign"`   // its namespace was adopted
	Allow       []string `json:"allow"`     // nil: everything public
	Connections int      `json:"connections"`
	Flows       int      `json:"flows"`
	Names       int      `json:"names"`
	In          int64    `json:"in"`  // bytes to the sandbox
	Out         int64    `json:"out"` // bytes from it
}

// acceptCalls returns when the listener is closed or has a deadline.
func (d *daemon) acceptCalls(wg *sync.WaitGroup) error {
	slots := make(chan struct{}, maxCalls)
	for {
		c, err := d.listener.AcceptUnix()
		if err != nil {
			if d.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				// Until it is known who goes on.
				if d.handedOver() {
					return nil
				}
				continue
			}
			select {
			case <-d.ctx.Done():
				return nil
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		select {
		case slots <- struct{}{}:
			wg.Go(func() {
				defer func() { <-slots }()
				defer c.Close()
				d.answer(c)
			})
		default:
			c.Close()
		}
	}
}

// handedOver waits for a handover to end, and says whether it did happen.
func (d *daemon) handedOver() bool {
	d.calls.RLock()
	defer d.calls.RUnlock()
	return d.handing()
}

// answer serves one call.
func (d *daemon) answer(c *net.UnixConn) {
	if err := sameUser(c); err != nil {
		d.log.Warn("refused a caller", "err", err)
		return
	}
	c.SetDeadline(time.Now().Add(callTimeout))
	var q call
	files, err := receive(c, &q)
	defer closeAll(files)
	if err != nil {
		d.log.Debug("receive a call", "err", err)
		return
	}
	if q.Call == callHandover {
		d.handOver(c, q.Format)
		return
	}
	res, out, err := d.do(q, files)
	defer out.Close() // nil is closed already
	if err != nil {
		if cause := fault.From(err).Cause; cause != nil {
			d.log.Error("call", "call", q.Call, "sandbox", q.ID, "err", cause)
		}
		res.Error = toWire(err)
	}
	c.SetDeadline(time.Now().Add(callTimeout))
	var fds []int
	if out != nil {
		fds = []int{int(out.Fd())}
	}
	if err := send(c, res, fds...); err != nil {
		d.log.Debug("answer a call", "call", q.Call, "err", err)
	}
}

// do does one call. A file that it returns belongs to the caller.
func (d *daemon) do(q call, files []*os.File) (res result, out *os.File, err error) {
	if q.Call == callRefusals {
		res.Refusals, res.Next, res.Lost = d.refusals(q.After, min(time.Duration(q.Wait)*time.Millisecond, maxWait))
		return res, nil, nil
	}
	d.calls.RLock()
	defer d.calls.RUnlock()
	if d.handing() {
		return res, nil, fault.New(fault.Busy, "the network daemon is being replaced; try again")
	}
	switch q.Call {
	case callPing:
		res.Info = &Info{Build: d.build, PID: os.Getpid(), Format: handoverFormat, Goroutines: runtime.NumGoroutine()}
	case callAttach:
		err = d.on(q.ID, true, func(b *box) (err error) { out, err = b.attach(); return err })
	case callAdopt:
		if len(files) != 1 {
			return res, nil, fault.New(fault.Invalid, "no namespace was handed over")
		}
		err = d.on(q.ID, true, func(b *box) error { return b.adopt(files[0]) })
	case callDetach:
		err = d.detach(q.ID)
	case callPolicy:
		err = d.on(q.ID, true, func(b *box) error { return b.setPolicy(rules(q.Open, q.Allow)) })
	case callTraffic:
		err = fault.New(fault.NotFound, "no sandbox %s is connected", q.ID)
		if ferr := d.on(q.ID, false, func(b *box) error { res.In, res.Out = b.traffic(); err = nil; return nil }); ferr != nil {
			err = ferr
		}
	case callList:
		res.Boxes = d.list()
	case callStrays:
		res.Lines, err = d.strays(q.Fix)
	case callStop:
		d.stop()
	default:
		err = fault.New(fault.Unsupported, "this network daemon does not know how to %.40q", q.Call)
	}
	return res, out, err
}

// refusals waits for something to tell.
func (d *daemon) refusals(after uint64, wait time.Duration) (found []Refusal, next uint64, lost bool) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		found, next, lost, wake := d.journal.since(after)
		if len(found) > 0 || wait <= 0 {
			return found, next, lost
		}
		select {
		case <-wake:
		case <-timeout.C:
			return nil, next, lost
		case <-d.ctx.Done():
			return nil, next, lost
		}
	}
}

func (d *daemon) list() []Status {
	all := []Status{}
	for _, b := range d.all() {
		b.op.Lock()
		s := Status{ID: b.id, Connected: b.router != nil, Foreign: b.rec.Foreign != 0, Allow: b.policy.Load().rules.Strings()}
		b.op.Unlock()
		s.In, s.Out = b.traffic()
		b.mu.Lock()
		s.Connections, s.Flows = len(b.conns), len(b.flows)
		b.mu.Unlock()
		b.names.mu.RLock()
		s.Names = len(b.names.list)
		b.names.mu.RUnlock()
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// strays lists, and with fix removes, what is in the folder and belongs to no
// sandbox.
func (d *daemon) strays(fix bool) ([]string, error) {
	known := map[string]bool{}
	d.mu.Lock()
	defer d.mu.Unlock() // nothing is made meanwhile
	for id := range d.boxes {
		known[id] = true
	}
	var lines []string
	entries, err := os.ReadDir(d.dir.namespaces())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		id := strings.TrimSuffix(strings.TrimSuffix(e.Name(), sandboxSuffix), routerSuffix)
		if known[id] || !driver.ValidID(id) {
			continue
		}
		lines = append(lines, "network namespace "+e.Name())
		if fix {
			if err := dropNamespace(d.dir.namespaces() + "/" + e.Name()); err != nil {
				return lines, err
			}
		}
	}
	ids, err := d.dir.recorded()
	if err != nil {
		return lines, err
	}
	for _, id := range ids {
		if known[id] {
			continue
		}
		lines = append(lines, "network record "+id)
		if fix {
			if err := d.dir.dropRecord(id); err != nil {
				return lines, err
			}
		}
	}
	return lines, nil
}
