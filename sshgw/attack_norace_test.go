//go:build !race

package sshgw

// idleCost is what an idle session may take.
const idleCost = 512 << 10
