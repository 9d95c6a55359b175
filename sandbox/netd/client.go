package netd

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Client talks to the daemon of a folder. It holds no connection, so it
// survives every change of daemons, and needs no closing. It may be used by
// many at once.
//
// All methods return faults: Unavailable when no daemon answers.
type Client struct {
	dir folder
	// start starts a daemon where none answers; nil: that is somebody else's.
	start func(context.Context) error
}

var _ driver.Network = (*Client)(nil)

// NewClient makes a client for the daemon of dir, whether it runs or not.
func NewClient(dir string) *Client { return &Client{dir: folder(dir)} }

// errNobody is that no daemon listens on a folder's socket, or that one went
// away in the middle of a call. All calls can be repeated.
var errNobody = errors.New("nobody listens")

// clientTimeout bounds a call whose context does not.
const clientTimeout = 30 * time.Second

// Resolver implements driver.Network.
func (*Client) Resolver() string { return resolver }

// Attach implements driver.Network. A sandbox that has no policy can reach
// nothing.
func (c *Client) Attach(ctx context.Context, id string) (*os.File, error) {
	_, files, err := c.call(ctx, call{Call: callAttach, ID: id})
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		closeAll(files)
		return nil, fault.New(fault.Internal, "the network daemon did not hand over a namespace")
	}
	return files[0], nil
}

// Adopt implements driver.Network.
func (c *Client) Adopt(ctx context.Context, id string, namespace *os.File) error {
	return c.do(ctx, call{Call: callAdopt, ID: id}, int(namespace.Fd()))
}

// Detach implements driver.Network. It also forgets the policy of the sandbox,
// and what its addresses mean.
func (c *Client) Detach(ctx context.Context, id string) error {
	return c.do(ctx, call{Call: callDetach, ID: id})
}

// SetPolicy gives a sandbox other rules (see package egress); nil allows
// everything public, an empty list nothing. They hold at once: connections
// that they do not allow have ended when it returns. A sandbox that is not
// connected yet has them from its first packet on; Detach forgets them.
//
// Rules that open private networks are taken: whether their author has the
// right to write them is checked before, by egress.Parse. Codes: Invalid.
func (c *Client) SetPolicy(ctx context.Context, id string, allow []string) error {
	return c.do(ctx, call{Call: callPolicy, ID: id, Open: allow == nil, Allow: allow})
}

// Traffic returns the bytes that went to and came from a sandbox since it was
// first connected. After a death of the daemon the last minute may be missing.
// Codes: NotFound.
func (c *Client) Traffic(ctx context.Context, id string) (in, out int64, err error) {
	res, _, err := c.call(ctx, call{Call: callTraffic, ID: id})
	return res.In, res.Out, err
}

// Refusals returns what sandboxes wanted and did not get, in order, after the
// place that an earlier call returned as next; 0 begins with the oldest that
// is kept. It waits for the first one, for as long as wait. lost says that some
// in between were dropped, because nobody read them or there were too many.
func (c *Client) Refusals(ctx context.Context, after uint64, wait time.Duration) (found []Refusal, next uint64, lost bool, err error) {
	res, _, err := c.call(ctx, call{Call: callRefusals, After: after, Wait: wait.Milliseconds()})
	return res.Refusals, max(res.Next, after), res.Lost, err
}

// List returns all sandboxes that the daemon knows, by id.
func (c *Client) List(ctx context.Context) ([]Status, error) {
	res, _, err := c.call(ctx, call{Call: callList})
	return res.Boxes, err
}

// Leftovers lists what belongs to no sandbox of known, one line each: networks
// of sandboxes that are gone, and files of half-made ones. With fix they are
// removed.
func (c *Client) Leftovers(ctx context.Context, known []string, fix bool) ([]string, error) {
	all, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, s := range all {
		if slices.Contains(known, s.ID) {
			continue
		}
		lines = append(lines, "network of "+s.ID)
		if fix {
			if err := c.Detach(ctx, s.ID); err != nil {
				return lines, err
			}
		}
	}
	res, _, err := c.call(ctx, call{Call: callStrays, Fix: fix})
	return append(lines, res.Lines...), err
}

// Ping returns what the daemon says of itself.
func (c *Client) Ping(ctx context.Context) (Info, error) {
	res, _, err := c.call(ctx, call{Call: callPing})
	if err == nil && res.Info == nil {
		err = fault.New(fault.Internal, "the network daemon does not say what it is")
	}
	if err != nil {
		return Info{}, err
	}
	return *res.Info, nil
}

// Stop ends the daemon. Sandboxes stay as they are; nothing they send gets out
// until another one runs.
func (c *Client) Stop(ctx context.Context) error { return c.do(ctx, call{Call: callStop}) }

// do makes a call that returns nothing.
func (c *Client) do(ctx context.Context, q call, fds ...int) error {
	_, files, err := c.call(ctx, q, fds...)
	closeAll(files)
	return err
}

// call makes one call. A daemon that is just being replaced is asked again.
func (c *Client) call(ctx context.Context, q call, fds ...int) (result, []*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout+time.Duration(q.Wait)*time.Millisecond)
	defer cancel()
	for {
		res, files, err := c.once(ctx, q, fds...)
		if errors.Is(err, errNobody) && c.start != nil && q.Call != callStop {
			if err := c.start(ctx); err != nil {
				return res, nil, err
			}
			res, files, err = c.once(ctx, q, fds...)
		}
		if err == nil || !fault.Is(err, fault.Busy) {
			return res, files, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return res, nil, fault.New(fault.Unavailable, "the network daemon does not answer")
		}
	}
}

func (c *Client) once(ctx context.Context, q call, fds ...int) (res result, files []*os.File, err error) {
	conn, err := dialFolder(ctx, c.dir)
	if err != nil {
		return res, nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err = send(conn, q, fds...); err == nil {
		files, err = receive(conn, &res)
	}
	switch {
	case ctx.Err() != nil:
		closeAll(files)
		return result{}, nil, fault.From(ctx.Err())
	case err != nil:
		return result{}, nil, fault.Wrap(errors.Join(errNobody, err), fault.Unavailable, "the network daemon went away; start the server again")
	case res.Error != nil:
		closeAll(files)
		return result{}, nil, res.Error.fault()
	}
	return res, files, nil
}

func dialFolder(ctx context.Context, dir folder) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", dir.socket())
	switch {
	case err == nil:
		return conn.(*net.UnixConn), nil
	case ctx.Err() != nil:
		return nil, fault.From(ctx.Err())
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOTDIR):
		return nil, fault.Wrap(errors.Join(errNobody, err), fault.Unavailable, "no network daemon runs; start the server again")
	}
	return nil, fault.Wrap(err, fault.Unavailable, "the network daemon cannot be reached")
}
