// Runsc is the part of a program that gVisor executes anew, and nothing else.
// Tests whose own program is linked dynamically give it to the driver instead.
package main

import "github.com/sandgate/sandgate/sandbox/gvisor"

func main() { gvisor.Main() }
