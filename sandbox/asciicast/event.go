package asciicast

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Header says what terminal was recorded, and when.
type Header struct {
	Width, Height int
	Timestamp     time.Time // to the second
	Title         string
	Term, Shell   string // the variables TERM and SHELL; no others are kept
}

// Code says what an event is.
type Code byte

// The codes of events.
const (
	Output Code = 'o' // data was printed
	Input  Code = 'i' // data was typed
	Resize Code = 'r' // the terminal got a new size, data is "80x24"
	Marker Code = 'm' // data is a remark
)

// Event is one thing that happened.
type Event struct {
	At   time.Duration // since the beginning
	Code Code
	Data string // UTF-8
}

// maxTime bounds the times of events: a hundred years.
const maxTime = 100 * 365 * 24 * time.Hour

// maxSide bounds the sides of a terminal; they have 16 bits in every protocol.
const maxSide = math.MaxUint16

// ErrFormat is why something is not a recording.
var ErrFormat = errors.New("not an asciicast v2 recording")

type environment struct {
	Shell string `json:"SHELL,omitempty"`
	Term  string `json:"TERM,omitempty"`
}

type headerV2 struct {
	Version   int          `json:"version"`
	Width     int          `json:"width"`
	Height    int          `json:"height"`
	Timestamp int64        `json:"timestamp,omitempty"`
	Title     string       `json:"title,omitempty"`
	Env       *environment `json:"env,omitempty"`
}

type terminal struct {
	Cols int    `json:"cols"`
	Rows int    `json:"rows"`
	Type string `json:"type,omitempty"`
}

type headerV3 struct {
	Version   int          `json:"version"`
	Term      terminal     `json:"term"`
	Timestamp int64        `json:"timestamp,omitempty"`
	Title     string       `json:"title,omitempty"`
	Env       *environment `json:"env,omitempty"`
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func (h Header) v2() headerV2 {
	out := headerV2{Version: 2, Width: side(h.Width, 80), Height: side(h.Height, 24), Timestamp: unix(h.Timestamp), Title: h.Title}
	if h.Term != "" || h.Shell != "" {
		out.Env = &environment{Shell: h.Shell, Term: h.Term}
	}
	return out
}

func (h Header) v3() headerV3 {
	out := headerV3{
		Version: 3, Term: terminal{Cols: side(h.Width, 80), Rows: side(h.Height, 24), Type: h.Term},
		Timestamp: unix(h.Timestamp), Title: h.Title,
	}
	if h.Shell != "" {
		out.Env = &environment{Shell: h.Shell}
	}
	return out
}

// side is a side of a terminal that has one.
func side(n, otherwise int) int {
	if n < 1 || n > maxSide {
		return otherwise
	}
	return n
}

// parseHeader reads the first line of a file.
func parseHeader(line []byte) (Header, error) {
	var h headerV2
	if err := json.Unmarshal(line, &h); err != nil {
		return Header{}, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if h.Version != 2 {
		return Header{}, fmt.Errorf("%w: it has version %d", ErrFormat, h.Version)
	}
	if h.Width < 1 || h.Width > maxSide || h.Height < 1 || h.Height > maxSide {
		return Header{}, fmt.Errorf("%w: a terminal of %d by %d", ErrFormat, h.Width, h.Height)
	}
	out := Header{Width: h.Width, Height: h.Height, Title: h.Title}
	if h.Timestamp != 0 {
		out.Timestamp = time.Unix(h.Timestamp, 0).UTC()
	}
	if h.Env != nil {
		out.Term, out.Shell = h.Env.Term, h.Env.Shell
	}
	return out, nil
}

// parseEvent reads a line after the first.
func parseEvent(line []byte) (Event, error) {
	var at float64
	var code, data string
	parts := []any{&at, &code, &data}
	if err := json.Unmarshal(line, &parts); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	switch {
	case len(parts) != 3:
		return Event{}, fmt.Errorf("%w: an event of %d parts", ErrFormat, len(parts))
	case parts[0] == nil || parts[1] == nil || parts[2] == nil:
		return Event{}, fmt.Errorf("%w: an event that lacks a part", ErrFormat)
	case len(code) != 1:
		return Event{}, fmt.Errorf("%w: the code %.8q", ErrFormat, code)
	case !(at >= 0 && at <= maxTime.Seconds()):
		return Event{}, fmt.Errorf("%w: the time %g", ErrFormat, at)
	}
	return Event{At: time.Duration(math.Round(at * float64(time.Second))), Code: Code(code[0]), Data: data}, nil
}

// appendEvent writes the line of an event, whose time has so many decimals.
func appendEvent(line []byte, seconds float64, decimals int, code Code, data string) []byte {
	line = append(line, '[')
	line = strconv.AppendFloat(line, seconds, 'f', decimals, 64)
	line = append(line, `, "`...)
	line = append(line, byte(code))
	line = append(line, `", `...)
	line = appendJSON(line, data)
	return append(line, ']', '\n')
}

// appendJSON writes v, which can be written, without the escapes that only
// HTML needs and without a newline. No control character stays as it is, so
// that a file can be looked at on a terminal.
func appendJSON(line []byte, v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // strings and structs of strings and numbers always encode
	raw := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	for i := 0; i < len(raw); i++ {
		switch {
		case raw[i] == ctlDelete:
			line = append(line, `\u007f`...)
		case raw[i] == 0xc2 && i+1 < len(raw) && raw[i+1] < 0xa0: // U+0080 to U+009F
			line = fmt.Appendf(line, `\u00%02x`, raw[i+1])
			i++
		default:
			line = append(line, raw[i])
		}
	}
	return line
}
