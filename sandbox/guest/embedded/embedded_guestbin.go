//go:build guestbin

// Package embedded holds the guest program in binaries that were built with
// the tag guestbin (make build), and nothing in others.
package embedded

import _ "embed"

// The file is made by:
//
//	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" \
//		-o sandbox/guest/embedded/sandgate-guest ./cmd/sandgate-guest
//
//go:embed sandgate-guest
var binary []byte

// Binary returns the guest program, nil when it is not built in. The caller
// does not change it.
func Binary() []byte { return binary }
