// Command sandgate-guest is the program that runs as PID 1 in every sandbox.
// It is small because it goes into sandboxes; see package agent.
package main

import (
	"os"

	"github.com/sandgate/sandgate/sandbox/guest/agent"
)

func main() { os.Exit(agent.Main(os.Args[1:])) }
