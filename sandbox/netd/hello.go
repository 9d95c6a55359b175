package netd

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"
)

var errNotTLS = errors.New("no TLS ClientHello")

// maxHello bounds what is kept of a ClientHello. With keys that resist quantum
// computers it is about 2 KiB.
const maxHello = 16 << 10

const (
	recordHandshake = 22
	messageHello    = 1
	extensionName   = 0
)

// helloName reads the server name out of the beginning of a TLS connection;
// empty when the hello carries none. more asks for more bytes.
func helloName(b []byte) (name string, more bool, err error) {
	var message []byte
	for rest := b; ; {
		if len(rest) == 0 {
			return "", true, nil
		}
		if rest[0] != recordHandshake || len(rest) > 1 && rest[1] != 3 {
			return "", false, errNotTLS
		}
		if len(rest) < 5 {
			return "", true, nil
		}
		size := int(rest[3])<<8 | int(rest[4])
		if size == 0 || size > 1<<14 {
			return "", false, errNotTLS
		}
		part := rest[5:]
		whole := len(part) >= size
		message = append(message, part[:min(size, len(part))]...)
		if len(message) > 0 && message[0] != messageHello {
			return "", false, errNotTLS
		}
		if len(message) >= 4 {
			length := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
			if length > maxHello {
				return "", false, errNotTLS
			}
			if len(message) >= 4+length {
				name, err := helloExtensions(message[4 : 4+length])
				return name, false, err
			}
		}
		if !whole {
			return "", true, nil
		}
		rest = part[size:]
	}
}

// helloExtensions finds the server name in the body of a ClientHello.
func helloExtensions(body []byte) (string, error) {
	s := cryptobyte.String(body)
	var session, suites, compression, extensions cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) || !s.ReadUint16LengthPrefixed(&suites) || !s.ReadUint8LengthPrefixed(&compression) {
		return "", errNotTLS
	}
	if s.Empty() {
		return "", nil
	}
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return "", errNotTLS
	}
	name, found := "", false
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			return "", errNotTLS
		}
		if kind != extensionName {
			continue
		}
		// Which of two names a server believes is not for us to guess.
		var list, value cryptobyte.String
		var of uint8
		if found || !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || !list.ReadUint8(&of) || of != 0 ||
			!list.ReadUint16LengthPrefixed(&value) || !list.Empty() || value.Empty() {
			return "", errNotTLS
		}
		name, found = string(value), true
	}
	return name, nil
}
