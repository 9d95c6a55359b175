package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// magic opens the host's line, so that a stream that leads elsewhere is
// noticed at once.
const magic = "sandgate-guest"

// Offer is the host's line.
type Offer struct {
	Oldest, Newest int
	Window         int
}

// Answer is the guest's line.
type Answer struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version,omitempty"`
	BootID   string `json:"bootId,omitempty"`
	Window   int    `json:"window,omitempty"`
	Error    string `json:"error,omitempty"`
}

// WriteOffer sends the host's line.
func WriteOffer(w io.Writer, o Offer) error {
	_, err := fmt.Fprintf(w, "%s %d %d %d\n", magic, o.Oldest, o.Newest, o.Window)
	return err
}

// ReadOffer reads the host's line.
func ReadOffer(r io.Reader) (Offer, error) {
	line, err := readLine(r)
	if err != nil {
		return Offer{}, err
	}
	words := strings.Split(string(line), " ")
	if len(words) != 4 || words[0] != magic {
		return Offer{}, Violation("not a handshake")
	}
	var n [3]int
	for i := range n {
		v, err := strconv.ParseUint(words[i+1], 10, 31)
		if err != nil {
			return Offer{}, Violation("handshake with the number %q", words[i+1])
		}
		n[i] = int(v)
	}
	o := Offer{Oldest: n[0], Newest: n[1], Window: n[2]}
	if o.Oldest < 1 || o.Newest < o.Oldest || o.Window < MinWindow {
		return Offer{}, Violation("handshake %q out of bounds", line)
	}
	return o, nil
}

// Choose picks the protocol version and the window for an offer. ok is false
// when the two sides have no version in common.
func (o Offer) Choose() (version, window int, ok bool) {
	version = min(o.Newest, NewestVersion)
	window = min(o.Window, Window)
	return version, window, version >= o.Oldest && version >= OldestVersion
}

// WriteAnswer sends the guest's line.
func WriteAnswer(w io.Writer, a Answer) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// ReadAnswer reads and checks the guest's line. An answer with Error is
// returned as it is; its text is for Printable.
func ReadAnswer(r io.Reader, o Offer) (Answer, error) {
	line, err := readLine(r)
	if err != nil {
		return Answer{}, err
	}
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return Answer{}, Violation("the answer to the handshake is not JSON: %v", err)
	}
	if a.Error != "" {
		return a, nil
	}
	switch {
	case a.Protocol < o.Oldest || a.Protocol > o.Newest:
		return Answer{}, Violation("the guest chose protocol %d of %d to %d", a.Protocol, o.Oldest, o.Newest)
	case a.Window < MinWindow || a.Window > o.Window:
		return Answer{}, Violation("the guest chose a window of %d", a.Window)
	case !Word(a.Version, 128) || !Word(a.BootID, 64):
		return Answer{}, Violation("the guest's version or boot id is malformed")
	}
	return a, nil
}

// readLine reads up to a newline. The peer sends nothing after its line until
// it was answered, so bytes behind the newline are a violation and nothing has
// to be kept.
func readLine(r io.Reader) ([]byte, error) {
	buf := make([]byte, MaxLine)
	n := 0
	for n < len(buf) {
		m, err := r.Read(buf[n:])
		if i := bytes.IndexByte(buf[n:n+m], '\n'); i >= 0 {
			if n+i+1 != n+m {
				return nil, Violation("bytes behind the handshake")
			}
			return buf[:n+i], nil
		}
		n += m
		if err == io.EOF && n > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, Violation("handshake of more than %d bytes", MaxLine)
}
