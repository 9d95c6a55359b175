//go:build cgo

// Command sandgate, built with cgo, is a stand-in that builds the real one
// without and becomes it.
//
// The go command uses cgo by itself wherever it finds a C compiler. The result
// needs the host's dynamic loader, which is out of reach in the empty root
// directory that gVisor locks itself into, so no sandbox would start. `go run`
// has no way to say "without cgo" in the source; this file is that way. It
// imports nothing heavy, so nothing is compiled twice.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

func main() {
	program, err := build()
	if err == nil {
		err = syscall.Exec(program, os.Args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "sandgate: this binary was built with cgo, and gVisor needs one without: build it with CGO_ENABLED=0 (make build):", err)
	os.Exit(1)
}

// build makes the static program from the source this one was made from. The
// go command's cache makes all but the first build quick.
func build() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", errors.New("the source is not known")
	}
	source := filepath.Dir(file)
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	name := sha256.Sum256([]byte(source))
	dir := filepath.Join(cache, "sandgate", "run", hex.EncodeToString(name[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Several may build at once: each its own file, and the name goes to the
	// last. A program that runs keeps its file.
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "sandgate")
	cmd := exec.Command("go", "build", "-o", out, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build: %w", err)
	}
	program := filepath.Join(dir, "sandgate")
	if err := os.Rename(out, program); err != nil {
		return "", err
	}
	return program, nil
}
