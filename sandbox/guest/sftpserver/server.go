// Package sftpserver is the sftp subsystem of a sandbox: it serves the
// filesystem that this process sees, as the user that it runs as, to the other
// end of two pipes. It runs inside of the sandbox, so that no path leads out.
//
// The server is pkg/sftp's. What OpenSSH's does otherwise, and its clients rely
// on, is done in front of it: the modes of new directories, a rename that
// replaces nothing, real paths, and the extensions by which clients learn the
// home directory and how large a packet may be. Relative paths resolve against
// the working directory of the process.
package sftpserver

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/pkg/sftp"
)

// Bounds that limits@openssh.com tells, those of OpenSSH.
const (
	maxPacket = 256 << 10
	maxData   = maxPacket - 1024
)

// Types of packets, of draft-ietf-secsh-filexfer-02.
const (
	typeInit          = 1
	typeVersion       = 2
	typeMkdir         = 14
	typeRealpath      = 16
	typeRename        = 18
	typeStatus        = 101
	typeName          = 104
	typeExtended      = 200
	typeExtendedReply = 201
)

// errMalformed ends the service of a client that does not speak sftp.
var errMalformed = errors.New("malformed sftp packet")

// Home tells the home directory of a user; the empty name is the user that the
// server runs as.
type Home func(user string) (dir string, ok bool)

// Serve serves until in ends.
func Serve(in io.Reader, out io.Writer, home Home) error {
	r := &requests{in: in, home: home}
	r.replies.out = out
	r.replies.changed.L = &r.replies.mu
	server, err := sftp.NewServer(r, sftp.WithMaxTxPacket(maxData))
	if err != nil {
		return err
	}
	err = server.Serve()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// requests hands packets to the server behind it, but for those that it answers
// itself. It does so when all before them are answered, so that nothing
// overtakes anything.
type requests struct {
	in      io.Reader
	home    Home
	replies replies

	head []byte // of the packet that is handed on, as far as it has not been read
	left int    // bytes of its body still in the stream
}

var _ io.ReadWriteCloser = (*requests)(nil)

func (r *requests) Read(b []byte) (int, error) {
	for len(r.head) == 0 && r.left == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	if len(r.head) > 0 {
		n := copy(b, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	n, err := r.in.Read(b[:min(len(b), r.left)])
	r.left -= n
	if err == io.EOF && r.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next reads the head of the next packet and answers what is to be answered
// here.
func (r *requests) next() error {
	var head [5]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length < 1 || length > maxPacket {
		return errMalformed
	}
	switch head[4] {
	case typeInit, typeMkdir, typeRealpath, typeRename, typeExtended:
	default:
		r.forward(head[:], int(length-1))
		return nil
	}
	body := make([]byte, length-1)
	if _, err := io.ReadFull(r.in, body); err != nil {
		return err
	}
	if !r.replies.wait() {
		return io.ErrClosedPipe
	}
	reply, err := r.answer(head[4], packet{rest: body})
	if err != nil {
		return err
	}
	if reply == nil {
		r.forward(append(head[:], body...), 0)
		return nil
	}
	return r.replies.send(reply)
}

func (r *requests) forward(head []byte, left int) {
	r.replies.expect()
	r.head, r.left = head, left
}

func (r *requests) Write(b []byte) (int, error) { return r.replies.Write(b) }

// Close is called when the server behind gives up.
func (r *requests) Close() error {
	r.replies.end()
	if c, ok := r.in.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// replies is the way back. Packets of the server behind, which come in one or
// two pieces, and those from here do not mix.
type replies struct {
	out  io.Writer
	turn sync.Mutex // held from the first byte of a packet to its last
	left int        // bytes of the server's present packet that are to come

	mu          sync.Mutex
	changed     sync.Cond
	outstanding int
	ended       bool
}

// expect notes a request that the server behind will answer.
func (w *replies) expect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outstanding++
}

// wait waits until the server has answered everything. It is false when it will
// not.
func (w *replies) wait() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.outstanding > 0 && !w.ended {
		w.changed.Wait()
	}
	return !w.ended
}

func (w *replies) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outstanding--
	w.changed.Broadcast()
}

func (w *replies) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.changed.Broadcast()
}

// Write takes a piece of a packet from the server, which writes one after the
// other.
func (w *replies) Write(b []byte) (int, error) {
	if w.left == 0 {
		if len(b) < 4 {
			return 0, errMalformed
		}
		w.turn.Lock()
		w.left = 4 + int(binary.BigEndian.Uint32(b))
	}
	n, err := w.out.Write(b)
	w.left -= n
	if err != nil {
		w.left = 0
		w.end()
	}
	if w.left == 0 {
		w.turn.Unlock()
		w.answered()
	}
	return n, err
}

// send sends a packet of our own.
func (w *replies) send(reply []byte) error {
	w.turn.Lock()
	defer w.turn.Unlock()
	_, err := w.out.Write(reply)
	return err
}
