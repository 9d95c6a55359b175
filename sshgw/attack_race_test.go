//go:build race

package sshgw

// idleCost is what an idle session may take; the race detector remembers every
// access to its memory beside it.
const idleCost = 4 << 20
