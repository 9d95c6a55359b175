//go:build race

package sandbox_test

// veryMuch is less with the race detector, which makes copying ten times slower.
const veryMuch = 128 << 20
