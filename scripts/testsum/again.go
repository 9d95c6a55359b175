package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// maxAgain is how many tests may be run a second time. More failures than
// this are no accident of a busy machine.
const maxAgain = 5

// tries is how often one package is run again.
const tries = 2

// again runs what has failed once more, alone, and reports whether all of it
// passed then. A test that fails under load and passes alone is a finding, so
// it is named at the end; it does not stop everybody else's work. What cannot
// be an accident is not tried again: a build that breaks, a data race, many
// failures at once.
func (s *summary) again(args []string, run func(args []string, s *summary) int, out io.Writer) bool {
	plan, ok := s.plan()
	if !ok {
		return false
	}
	flags, _ := splitArgs(args)
	var flaky []string
	for _, p := range plan {
		more := append(slices.Clone(flags), "-count=1")
		if p.tests != "" {
			more = append(more, "-run", p.tests)
		}
		passed := false
		for try := 0; try < tries && !passed; try++ {
			fmt.Fprintf(out, "\nonce more, alone: %s %s\n", short(p.pkg), p.tests)
			next := newSummary(out)
			passed = run(append(slices.Clone(more), p.pkg), next) == 0 && next.total > 0
		}
		if !passed {
			return false
		}
		flaky = append(flaky, short(p.pkg)+" "+p.tests)
	}
	fmt.Fprintf(out, "\nflaky: failed among the others, passed alone:\n")
	for _, f := range flaky {
		fmt.Fprintf(out, "  %s\n", f)
	}
	return true
}

// repeat is one package to test once more.
type repeat struct {
	pkg   string
	tests string // for -run; empty: all of the package
}

// plan says what to run once more; false when nothing should be.
func (s *summary) plan() ([]repeat, bool) {
	if s.broken || s.race || len(s.failedTests) == 0 {
		return nil, false
	}
	var plan []repeat
	n := 0
	for _, pkg := range s.failedPackages {
		tests := s.failedTests[pkg]
		if slices.Contains(tests, "") { // it ended outside of its tests, as by its time limit
			plan = append(plan, repeat{pkg: pkg})
			n++
			continue
		}
		n += len(tests)
		quoted := make([]string, len(tests))
		for i, t := range tests {
			quoted[i] = regexp.QuoteMeta(t)
		}
		plan = append(plan, repeat{pkg, "^(" + strings.Join(quoted, "|") + ")$"})
	}
	return plan, n <= maxAgain
}

// splitArgs parts the arguments of go test into flags and packages, which come
// last.
func splitArgs(args []string) (flags, packages []string) {
	for i, a := range args {
		if strings.HasPrefix(a, "./") || a == "." || strings.HasPrefix(a, "github.com/") {
			return args[:i], args[i:]
		}
	}
	return args, nil
}
