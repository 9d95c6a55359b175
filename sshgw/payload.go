package sshgw

import (
	"encoding/binary"
	"errors"
	"math"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// The payloads of requests, as RFC 4254 lays them out. Every parser takes
// bytes of a client, returns an error for what is malformed, and never more
// than it was given.

var errPayload = errors.New("malformed request")

// parsePTY reads a pty-req.
func parsePTY(b []byte) (*guest.TTY, error) {
	var m struct {
		Term          string
		Cols, Rows    uint32
		Width, Height uint32
		Modes         string
	}
	if err := gossh.Unmarshal(b, &m); err != nil {
		return nil, errPayload
	}
	modes, err := parseModes([]byte(m.Modes))
	if err != nil {
		return nil, err
	}
	return &guest.TTY{Term: cleanTerm(m.Term), Size: terminalSize(m.Cols, m.Rows), Modes: modes}, nil
}

// cleanTerm returns the terminal type, or "dumb" if it is none that could be
// in a terminal database: it becomes part of file names there.
func cleanTerm(t string) string {
	if len(t) > maxRef {
		return "dumb"
	}
	for i := range len(t) {
		if !isNameByte(t[i]) && t[i] != '+' || i == 0 && t[i] == '.' {
			return "dumb"
		}
	}
	return t
}

// parseModes reads encoded terminal modes: pairs of an opcode and a value up
// to opcode 0 or the first undefined one (160 and above).
func parseModes(b []byte) (map[uint8]uint32, error) {
	modes := make(map[uint8]uint32)
	for len(b) > 0 {
		op := b[0]
		if op == 0 || op >= 160 {
			break
		}
		if len(b) < 5 {
			return nil, errPayload
		}
		modes[op] = binary.BigEndian.Uint32(b[1:5])
		b = b[5:]
	}
	return modes, nil
}

// parseWindow reads a window-change.
func parseWindow(b []byte) (guest.Size, error) {
	var m struct{ Cols, Rows, Width, Height uint32 }
	if err := gossh.Unmarshal(b, &m); err != nil {
		return guest.Size{}, errPayload
	}
	return terminalSize(m.Cols, m.Rows), nil
}

func terminalSize(cols, rows uint32) guest.Size {
	return guest.Size{Rows: uint16(min(rows, math.MaxUint16)), Cols: uint16(min(cols, math.MaxUint16))}
}

// parseString reads a payload that is one string: exec, subsystem, signal.
func parseString(b []byte) (string, error) {
	var m struct{ S string }
	if err := gossh.Unmarshal(b, &m); err != nil {
		return "", errPayload
	}
	return m.S, nil
}

// parseEnv reads an env request.
func parseEnv(b []byte) (name, value string, err error) {
	var m struct{ Name, Value string }
	if err := gossh.Unmarshal(b, &m); err != nil {
		return "", "", errPayload
	}
	return m.Name, m.Value, nil
}

// parseDirectTCP reads the extra data of a direct-tcpip channel.
func parseDirectTCP(b []byte) (host string, port uint16, err error) {
	var m struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if err := gossh.Unmarshal(b, &m); err != nil {
		return "", 0, errPayload
	}
	if m.Port == 0 || m.Port > math.MaxUint16 || m.Host == "" || len(m.Host) > 255 {
		return "", 0, errPayload
	}
	for i := range len(m.Host) {
		if m.Host[i] <= ' ' || m.Host[i] > '~' {
			return "", 0, errPayload
		}
	}
	return m.Host, uint16(m.Port), nil
}

// signalNames are the signals of RFC 4254, without SIG. Both directions use
// them; others are passed on to the client with a domain, as sshd does.
var signalNames = map[string]bool{
	"ABRT": true, "ALRM": true, "FPE": true, "HUP": true, "ILL": true, "INT": true, "KILL": true,
	"PIPE": true, "QUIT": true, "SEGV": true, "TERM": true, "USR1": true, "USR2": true,
}
