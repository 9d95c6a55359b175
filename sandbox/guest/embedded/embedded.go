//go:build !guestbin

// Package embedded holds the guest program in binaries that were built with
// the tag guestbin (make build), and nothing in others.
package embedded

// Binary returns the guest program, nil when it is not built in. The caller
// does not change it.
func Binary() []byte { return nil }
