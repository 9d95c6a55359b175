// Rogue is a guest that behaves badly, for tests of what a driver promises
// whatever its guest does. The variable ROGUE in the environment of PID 1
// chooses how:
//
//	deaf   init ignores every signal; relay neither reads nor writes
//	noisy  init ignores every signal; relay copies its input to its output and
//	       floods its standard error
//	exit   init ends at once
package main

import (
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// modeFile carries the choice from init to relay, which may have another
// environment.
const modeFile = "/rogue"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "relay" {
		relay()
		return
	}
	mode := os.Getenv("ROGUE")
	if mode == "exit" {
		os.Exit(3)
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	if err := os.WriteFile(modeFile, []byte(mode), 0o600); err != nil {
		os.Exit(1)
	}
	block()
}

func relay() {
	for { // init may not have come so far yet
		mode, err := os.ReadFile(modeFile)
		if err == nil && string(mode) == "deaf" {
			block()
		}
		if err == nil && string(mode) == "noisy" {
			break
		}
	}
	noise := make(chan struct{})
	go func() {
		defer close(noise)
		line := strings.Repeat("noise", 200) + "\n"
		for range 4000 {
			if _, err := io.WriteString(os.Stderr, line); err != nil {
				return
			}
		}
	}()
	_, _ = io.Copy(os.Stdout, os.Stdin) // until one of them ends
	<-noise
}

// block waits for ever without being a deadlock to the Go runtime.
func block() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	select {}
}
