//go:build !cgo

// Command sandgate runs isolated Linux sandboxes and the gate to them: an ssh
// gateway, an HTTP API and a command line, in one static binary. What it does
// is in package cli.
package main

import "github.com/sandgate/sandgate/cmd/sandgate/cli"

func main() { cli.Main() }
