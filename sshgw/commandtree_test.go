package sshgw

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// commands is the command tree of the tests.
func commands(ctx context.Context, cio CommandIO, args []string) int {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	switch verb {
	case "":
		fmt.Fprintln(cio.Stdout, "usage: help")
		fmt.Fprintln(cio.Stdout, "more")
	case "whoami":
		fmt.Fprintln(cio.Stdout, cio.Principal.ID, cio.Principal.Role, cio.Principal.Door)
	case "user":
		fmt.Fprintf(cio.Stdout, "%q %v\n", cio.User, cio.Fallback)
	case "args":
		fmt.Fprintf(cio.Stdout, "%q\n", args)
	case "env":
		fmt.Fprintln(cio.Stdout, strings.Join(cio.Env, "\n"))
	case "cat":
		_, _ = io.Copy(cio.Stdout, cio.Stdin)
	case "raw":
		cio.TTY.SetRaw()
		fmt.Fprintln(cio.Stdout, "waiting")
		_, _ = io.Copy(cio.Stdout, cio.Stdin)
	case "exit":
		n, _ := strconv.Atoi(args[0])
		fmt.Fprintln(cio.Stderr, "going")
		return n
	case "size":
		if cio.TTY == nil {
			return 1
		}
		fmt.Fprintln(cio.Stdout, cio.TTY.Term, cio.TTY.Size.Rows, cio.TTY.Size.Cols)
	case "resized":
		fmt.Fprintln(cio.Stdout, "waiting")
		for {
			select {
			case size := <-cio.TTY.Resized:
				fmt.Fprintln(cio.Stdout, size.Rows, size.Cols)
				if size.Rows == 99 {
					return 0
				}
			case <-ctx.Done():
				return 1
			}
		}
	case "flood":
		for ctx.Err() == nil {
			if _, err := fmt.Fprintln(cio.Stdout, "y"); err != nil {
				return 141
			}
		}
		return 130
	case "wait":
		fmt.Fprintln(cio.Stdout, "waiting")
		<-ctx.Done()
		return 130
	case "panic":
		panic("on purpose")
	default:
		fmt.Fprintf(cio.Stderr, "unknown command %q\n", verb)
		return 2
	}
	return 0
}
