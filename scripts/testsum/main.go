// Command testsum runs `go test -json` with the arguments it is given and
// prints what a person needs: one line per package, the output of what failed,
// and at the end what was skipped and why.
//
// A skipped test is a hole in the proof, so it must not go by unseen. In CI,
// where everything the tests need is installed, SANDGATE_TEST_REQUIRE holds
// words ("docker,gvisor,ssh"): a skip whose reason, test or package contains
// one of them fails the run. The word "all" matches every skip, and
// SANDGATE_TEST_ALLOW_SKIP holds the words that are excused from it.
//
// What fails is run once more, alone: see again.go.
//
// The exit status is that of go test, or 1 when a required test was skipped.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdout))
}

func run(args []string, getenv func(string) string, out io.Writer) int {
	began := time.Now()
	s := newSummary(out)
	code := goTest(args, s)
	s.print(time.Since(began))
	if code != 0 && !s.again(args, goTest, out) {
		return code
	}
	missing := s.required(words(getenv("SANDGATE_TEST_REQUIRE")), words(getenv("SANDGATE_TEST_ALLOW_SKIP")))
	for _, m := range missing {
		fmt.Fprintf(out, "must not be skipped here: %s\n", m)
	}
	if len(missing) > 0 {
		return 1
	}
	return 0
}

// goTest runs go test and returns its exit status.
func goTest(args []string, s *summary) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "start go test: %v\n", err)
		return 1
	}
	readErr := s.read(events)
	err = cmd.Wait()
	exit, isExit := errors.AsType[*exec.ExitError](err)
	switch {
	case readErr != nil:
		fmt.Fprintf(os.Stderr, "read the output of go test: %v\n", readErr)
		return 1
	case isExit:
		return max(exit.ExitCode(), 1)
	case err != nil:
		fmt.Fprintf(os.Stderr, "go test: %v\n", err)
		return 1
	}
	return 0
}

// words splits a list that is separated by commas.
func words(list string) []string {
	var w []string
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.ToLower(strings.TrimSpace(part)); part != "" {
			w = append(w, part)
		}
	}
	return w
}
