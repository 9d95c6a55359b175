package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// maxReply bounds what the control socket may answer. The sentry is part of
// the sandbox as far as trust goes: who breaks gVisor answers here.
const maxReply = 8 << 20

// errDown means that no sentry listens on a control socket.
var errDown = errors.New("the sandbox does not run")

// controlSocket is where the sentry of a sandbox listens.
func (d *Driver) controlSocket(id string) string {
	return filepath.Join(d.runDir(), "runsc-"+id+".sock")
}

// dialControl connects to the sentry. The error is errDown when there is none.
func (d *Driver) dialControl(ctx context.Context, id string) (*net.UnixConn, error) {
	// The path of a socket is bounded to 107 bytes, and state directories are
	// not: go through a descriptor.
	dir, err := os.Open(d.runDir())
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", fdPath(dir)+"/"+filepath.Base(d.controlSocket(id)))
	switch {
	case err == nil:
		return c.(*net.UnixConn), nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return nil, errDown
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("connect to the sandbox: %w", err)
}

// listens reports whether a sentry holds the control socket. A full queue
// means that it does. Connecting waits for nothing, so a context that has ended
// need not, and must not, make it seem that nobody listens.
func (d *Driver) listens(ctx context.Context, id string) bool {
	c, err := d.dialControl(context.WithoutCancel(ctx), id)
	if err == nil {
		c.Close()
	}
	return err == nil || errors.Is(err, unix.EAGAIN)
}

// call calls a method of the sentry's control server: JSON over the socket,
// files next to the first byte. runsc has a client of its own; this one obeys
// a context, which a sandbox that does not answer makes necessary, and bounds
// the reply.
func (d *Driver) call(ctx context.Context, id, method string, arg, result any, files ...*os.File) error {
	c, err := d.dialControl(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	// A moment long past unblocks reads and writes.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err = roundTrip(c, method, arg, result, files)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func roundTrip(c *net.UnixConn, method string, arg, result any, files []*os.File) error {
	request, err := json.Marshal(struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{method, arg})
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := c.WriteMsgUnix(request, rights, nil)
	if err == nil && n < len(request) {
		_, err = c.Write(request[n:])
	}
	if err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	reply := struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
		Result  any    `json:"result"`
	}{Result: result}
	if err := json.NewDecoder(io.LimitReader(c, maxReply)).Decode(&reply); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) {
			return fmt.Errorf("call %s: %w", method, errDown)
		}
		return fmt.Errorf("call %s: %w", method, err)
	}
	if !reply.Success {
		return fmt.Errorf("call %s: %w", method, refusal(reply.Err))
	}
	return nil
}

// refusal is an error that the sentry answered with.
type refusal string

func (r refusal) Error() string { return string(r) }
