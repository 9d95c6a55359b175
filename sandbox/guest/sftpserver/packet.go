package sftpserver

import (
	"encoding/binary"
	"errors"
	"syscall"
)

// packet reads the fields of a packet. What is missing is empty, and bad then.
type packet struct {
	rest []byte
	bad  bool
}

func (p *packet) uint32() uint32 {
	if len(p.rest) < 4 {
		p.rest, p.bad = nil, true
		return 0
	}
	v := binary.BigEndian.Uint32(p.rest)
	p.rest = p.rest[4:]
	return v
}

func (p *packet) uint64() uint64 {
	high := p.uint32()
	return uint64(high)<<32 | uint64(p.uint32())
}

func (p *packet) text() string {
	n := p.uint32()
	if uint64(n) > uint64(len(p.rest)) {
		p.rest, p.bad = nil, true
		return ""
	}
	s := string(p.rest[:n])
	p.rest = p.rest[n:]
	return s
}

// Flags of attributes.
const (
	attrSize        = 1
	attrOwner       = 2
	attrPermissions = 4
)

// mode reads the permissions of attributes, and def when they have none.
func (p *packet) mode(def uint32) uint32 {
	flags := p.uint32()
	if flags&attrSize != 0 {
		p.uint64()
	}
	if flags&attrOwner != 0 {
		p.uint64()
	}
	if flags&attrPermissions != 0 {
		return p.uint32() & 0o7777
	}
	return def
}

// build makes packets.
type build []byte

func newPacket(kind byte) build { return build{0, 0, 0, 0, kind} }

func (b build) uint32(v uint32) build { return binary.BigEndian.AppendUint32(b, v) }
func (b build) uint64(v uint64) build { return binary.BigEndian.AppendUint64(b, v) }
func (b build) text(s string) build   { return append(b.uint32(uint32(len(s))), s...) }

// done fills in the length.
func (b build) done() []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// Codes of a status.
const (
	statusOK          = 0
	statusNoSuchFile  = 2
	statusDenied      = 3
	statusFailure     = 4
	statusBadMessage  = 5
	statusUnsupported = 8
)

// status answers with what became of a request.
func status(id uint32, err error) []byte {
	code, text := uint32(statusFailure), "Failure"
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		text = errno.Error()
		switch errno {
		case syscall.ENOENT, syscall.EBADF:
			code = statusNoSuchFile
		case syscall.EPERM, syscall.EACCES:
			code = statusDenied
		case syscall.EINVAL, syscall.ENAMETOOLONG:
			code = statusBadMessage
		case syscall.ENOSYS, syscall.EOPNOTSUPP:
			code = statusUnsupported
		}
	}
	if err == nil {
		code, text = statusOK, "Success"
	}
	return newPacket(typeStatus).uint32(id).uint32(code).text(text).text("").done()
}

// name answers with a path.
func name(id uint32, path string) []byte {
	return newPacket(typeName).uint32(id).uint32(1).text(path).text(path).uint32(0).done()
}
