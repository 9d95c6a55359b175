//go:build !race

package sandbox_test

const veryMuch = 1 << 30
