package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrProtocol is wrapped by every error that means that the peer broke the
// protocol, as opposed to having gone away.
var ErrProtocol = errors.New("protocol violation")

// ErrTooLarge is wrapped when a message is too large to be sent. Nothing has
// been sent then.
var ErrTooLarge = errors.New("message too large")

// Violation makes an error that wraps ErrProtocol.
func Violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// WriteMessage sends v as one message with a single Write.
func WriteMessage(w io.Writer, v any, limit int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > limit {
		return fmt.Errorf("%w: %d bytes of at most %d", ErrTooLarge, len(body), limit)
	}
	msg := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(msg, uint32(len(body)))
	_, err = w.Write(append(msg, body...))
	return err
}

// ReadMessage reads one message into v. Memory grows with what arrives and
// never with what is announced.
func ReadMessage(r io.Reader, v any, limit int) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return Violation("message of %d bytes, at most %d are allowed", n, limit)
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if err := json.Unmarshal(body.Bytes(), v); err != nil {
		return Violation("message is not what it should be: %v", err)
	}
	return nil
}

// Marshal encodes arguments or a result; nil stays nil.
func Marshal(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}

// Unmarshal decodes arguments or a result.
func Unmarshal(raw json.RawMessage, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return Violation("arguments are not what they should be: %v", err)
	}
	return nil
}
