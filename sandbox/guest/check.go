package guest

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/screenmode"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// The checks of what a guest says. Each returns a violation of the protocol
// for what no guest of ours would say.

// maxPID is the largest process id of Linux (PID_MAX_LIMIT).
const maxPID = 1 << 22

func checkError(e wire.Error) (*fault.Error, error) {
	code := fault.Code(e.Code)
	if !slices.Contains(fault.Codes(), code) {
		return nil, wire.Violation("error with the code %q", wire.Printable(e.Code, 64))
	}
	if len(e.Message) > wire.MaxText || len(e.Field) > 64 {
		return nil, wire.Violation("error with a text of %d bytes", len(e.Message))
	}
	f := fault.New(code, "%s", wire.Printable(e.Message, wire.MaxText))
	f.Field = wire.Printable(e.Field, 64)
	if f.Message == "" {
		f.Message = "the sandbox's guest gave no reason"
	}
	return f, nil
}

func checkStarted(s *wire.Started) error {
	switch {
	case s.PID < 0 || s.PID > maxPID:
		return wire.Violation("process id %d", s.PID)
	case s.Offset < 0 || s.Offset > wire.MaxOffset:
		return wire.Violation("offset %d", s.Offset)
	case len(s.Modes) > wire.MaxModes:
		return wire.Violation("modes of %d bytes", len(s.Modes))
	}
	s.Modes = screenmode.Clean(s.Modes)
	return nil
}

func checkExit(e wire.Exit) (Exit, error) {
	switch {
	case e.Signal == "" && (e.Code < 0 || e.Code > 255):
		return Exit{}, wire.Violation("exit code %d", e.Code)
	case e.Signal != "" && (wire.SignalNumber(e.Signal) == 0 || e.Code != 0):
		return Exit{}, wire.Violation("exit by signal %q", wire.Printable(e.Signal, 32))
	case e.Offset < 0 || e.Offset > wire.MaxOffset:
		return Exit{}, wire.Violation("offset %d", e.Offset)
	}
	return Exit{Code: e.Code, Signal: e.Signal, CoreDumped: e.CoreDumped}, nil
}

// readInfos decodes a list entry by entry: decoded as a whole, a small text
// could become a very long list of large values.
func readInfos(raw json.RawMessage) ([]Info, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, wire.Violation("the list of processes is none")
	}
	infos := []Info{}
	for d.More() {
		if len(infos) == wire.MaxProcess {
			return nil, wire.Violation("more than %d processes", wire.MaxProcess)
		}
		var info Info
		if err := d.Decode(&info); err != nil {
			return nil, wire.Violation("an entry in the list of processes is none: %v", err)
		}
		if err := checkInfo(&info); err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func checkInfo(info *Info) error {
	if !wire.Word(info.ID, wire.MaxID) || len(info.Label) > wire.MaxLabel || len(info.Title) > wire.MaxTitle {
		return wire.Violation("process with the id %q", wire.Printable(info.ID, wire.MaxID))
	}
	if info.PID < 0 || info.PID > maxPID || info.Attached < 0 || info.Attached > wire.MaxStreams {
		return wire.Violation("process id %d with %d attachments", info.PID, info.Attached)
	}
	if _, err := checkExit(wire.Exit{Code: info.Exit.Code, Signal: info.Exit.Signal}); err != nil {
		return err
	}
	info.Title = wire.Printable(info.Title, wire.MaxTitle)
	info.Label = wire.Printable(info.Label, wire.MaxLabel)
	return nil
}

func checkFile(f wire.File) error {
	if f.Size < 0 || f.Size > wire.MaxFileSize || f.Mode > 0o777 {
		return wire.Violation("file of %d bytes with the mode %o", f.Size, f.Mode)
	}
	return nil
}
