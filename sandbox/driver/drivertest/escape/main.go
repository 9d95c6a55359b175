// Escape is what an intruder would run in a sandbox, for tests of the walls:
// each command tries one kind of way out, or takes as much of something as it
// gets, and says what came of it, one line for each try.
//
// It only ever asks for what does no harm where it is granted: a wall that is
// missing must not cost the machine the tests run on.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// commands by name, each with the rest of the command line.
var commands = map[string]func(args []string) error{
	"calls":       func([]string) error { return calls() },
	"devices":     devices,
	"writable":    writable,
	"pid1":        func([]string) error { return pidOne() },
	"programs":    func([]string) error { return programs() },
	"nested":      nested,
	"sockets":     sockets,
	"terminals":   func([]string) error { return terminals() },
	"memory":      counted(memory),
	"fork":        counted(forkBomb),
	"threads":     counted(threads),
	"zombies":     counted(zombies),
	"descriptors": counted(descriptors),
	"watches":     counted(watches),
	"inodes":      counted(inodes),
	"deep":        counted(deep),
	"signals":     counted(signals),
	"connections": counted(connections),
	"trace":       func([]string) error { return trace() },
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: escape COMMAND [ARGUMENT…]")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "escape:", err)
		os.Exit(1)
	}
}

// counted is a command with a number for how much.
func counted(do func(n int) error) func([]string) error {
	return func(args []string) error {
		if len(args) != 1 {
			return errors.New("how many?")
		}
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		return do(n)
	}
}

// say prints what came of one try: granted, or why not.
func say(name string, err error) {
	if err == nil {
		fmt.Fprintf(os.Stdout, "%s: granted\n", name)
		return
	}
	fmt.Fprintf(os.Stdout, "%s: %v\n", name, err)
}

// hold says how much there is of what was taken, and keeps it until the input
// has a line or ends.
func hold(n int, err error) error {
	fmt.Fprintf(os.Stdout, "took %d (%v)\nready\n", n, err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // the end is as good
	return nil
}
