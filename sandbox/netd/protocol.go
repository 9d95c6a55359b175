package netd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// A frame is a length, so many bytes of JSON, and descriptors that travel with
// the length.
const (
	maxFrame = 64 << 20
	// maxFDs in one frame; the kernel's own bound is 253.
	maxFDs = 16
)

// The calls, one for each connection.
const (
	callPing     = "ping"
	callAttach   = "attach"
	callAdopt    = "adopt"
	callDetach   = "detach"
	callPolicy   = "policy"
	callTraffic  = "traffic"
	callRefusals = "refusals"
	callList     = "list"
	callStrays   = "strays"
	callStop     = "stop"
	callHandover = "handover"
)

// call is what a client asks.
type call struct {
	Call  string   `json:"call"`
	ID    string   `json:"id,omitempty"`
	Open  bool     `json:"open,omitempty"` // everything public
	Allow []string `json:"allow,omitempty"`
	After uint64   `json:"after,omitempty"`
	Wait  int64    `json:"wait,omitempty"` // milliseconds
	Fix   bool     `json:"fix,omitempty"`
	// Format of a handover that the caller understands.
	Format int `json:"format,omitempty"`
}

// result is the answer.
type result struct {
	Error    *wireError `json:"error,omitempty"`
	Info     *Info      `json:"info,omitempty"`
	In       int64      `json:"in,omitempty"`
	Out      int64      `json:"out,omitempty"`
	Refusals []Refusal  `json:"refusals,omitempty"`
	Next     uint64     `json:"next,omitempty"`
	Lost     bool       `json:"lost,omitempty"`
	Boxes    []Status   `json:"boxes,omitempty"`
	Lines    []string   `json:"lines,omitempty"`
}

// wireError is a fault on its way. The cause stays in the log of the daemon.
type wireError struct {
	Code    fault.Code `json:"code"`
	Field   string     `json:"field,omitempty"`
	Message string     `json:"message"`
}

func toWire(err error) *wireError {
	if err == nil {
		return nil
	}
	f := fault.From(err)
	return &wireError{f.Code, f.Field, f.Message}
}

func (w *wireError) fault() error {
	if w == nil {
		return nil
	}
	return &fault.Error{Code: w.Code, Field: w.Field, Message: w.Message, Kind: "network"}
}

// send writes a frame.
func send(c *net.UnixConn, v any, fds ...int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame || len(fds) > maxFDs {
		return fmt.Errorf("a frame of %d bytes and %d descriptors is too large", len(body), len(fds))
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := c.WriteMsgUnix(frame, rights, nil)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if n < len(frame) {
		if _, err := c.Write(frame[n:]); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// receive reads a frame. The caller closes the files.
func receive(c *net.UnixConn, v any) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	var size [4]byte
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	n, on, flags, _, err := c.ReadMsgUnix(size[:], oob)
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	if files, err = received(oob[:on]); err != nil {
		return files, err
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return files, errors.New("receive: too many descriptors")
	}
	if n == 0 {
		return files, io.EOF
	}
	if _, err := io.ReadFull(c, size[n:]); err != nil {
		return files, fmt.Errorf("receive: %w", err)
	}
	length := binary.BigEndian.Uint32(size[:])
	if length > maxFrame {
		return files, fmt.Errorf("receive: a frame of %d bytes is too large", length)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(c, body); err != nil {
		return files, fmt.Errorf("receive: %w", err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return files, fmt.Errorf("receive: %w", err)
	}
	return files, nil
}

func received(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("receive descriptors: %w", err)
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, fmt.Errorf("receive descriptors: %w", err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// sameUser refuses a peer that is neither the user of this process nor root.
// The folder keeps others out already; this holds where it does not.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(cerr, err); err != nil {
		return fmt.Errorf("find out who calls: %w", err)
	}
	if cred.Uid != 0 && cred.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("user %d may not use this", cred.Uid)
	}
	return nil
}
