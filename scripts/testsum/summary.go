package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	// ImportPath is set instead of Package on the output of a build. It may
	// name a test variant: "path [path.test]".
	ImportPath string
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// skip is one test that did not run.
type skip struct {
	pkg, test, reason string
}

func (s skip) String() string { return s.pkg + " " + s.test + ": " + s.reason }

// summary collects events and prints packages as they end.
type summary struct {
	out    io.Writer
	output map[string][]string // by package and test, until the test has ended
	passed map[string]int      // by package
	skips  []skip
	failed []string // "package test", or a package that failed outside of its tests
	total  int      // tests that passed

	failedPackages []string
	failedTests    map[string][]string // by package: tests of the top level, "" for the package itself
	broken         bool                // something did not build
	race           bool                // the race detector spoke
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, output: map[string][]string{}, passed: map[string]int{}, failedTests: map[string][]string{}}
}

func (s *summary) read(r io.Reader) error {
	dec := json.NewDecoder(r)
	for {
		var e event
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		s.add(e)
	}
}

func (s *summary) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		s.output[key] = append(s.output[key], e.Output)
		s.race = s.race || strings.Contains(e.Output, "WARNING: DATA RACE")
	case "build-output":
		s.broken = true
		fmt.Fprint(s.out, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
		delete(s.output, key)
	}
}

func (s *summary) endTest(e event) {
	output := s.output[e.Package+" "+e.Test]
	switch e.Action {
	case "pass":
		s.passed[e.Package]++
		s.total++
	case "skip":
		s.skips = append(s.skips, skip{short(e.Package), e.Test, reason(output)})
	case "fail":
		s.failed = append(s.failed, short(e.Package)+" "+e.Test)
		if !strings.Contains(e.Test, "/") {
			s.failedTests[e.Package] = append(s.failedTests[e.Package], e.Test)
		}
		fmt.Fprint(s.out, strings.Join(output, ""))
	}
}

func (s *summary) endPackage(e event) {
	key := e.Package + " "
	switch {
	case e.Action == "fail":
		fmt.Fprint(s.out, strings.Join(s.output[key], ""))
		// What a test wrote that never ended, because the process did first.
		for k, lines := range s.output {
			if k != key && strings.HasPrefix(k, key) {
				fmt.Fprint(s.out, strings.Join(lines, ""))
			}
		}
		if !slices.ContainsFunc(s.failed, func(f string) bool { return strings.HasPrefix(f, short(e.Package)+" ") }) {
			s.failed = append(s.failed, short(e.Package)+" (outside of its tests)")
		}
		s.failedPackages = append(s.failedPackages, e.Package)
		// A package that ended early (a panic, its time limit) has not run all.
		if len(s.failedTests[e.Package]) == 0 || s.unfinished(key) {
			s.failedTests[e.Package] = []string{""}
		}
	case s.passed[e.Package] > 0:
		fmt.Fprintf(s.out, "ok    %-28s %3d tests  %6.1fs\n", short(e.Package), s.passed[e.Package], e.Elapsed)
	case slices.ContainsFunc(s.skips, func(k skip) bool { return k.pkg == short(e.Package) }):
		fmt.Fprintf(s.out, "skip  %-28s\n", short(e.Package))
	}
}

// unfinished reports whether a test of the package has written something and
// never ended. key is that of the package.
func (s *summary) unfinished(key string) bool {
	for k := range s.output {
		if k != key && strings.HasPrefix(k, key) {
			return true
		}
	}
	return false
}

// print writes the end of the report: skips grouped by reason, then one line.
func (s *summary) print(took time.Duration) {
	s.printSkips()
	if len(s.failed) > 0 {
		fmt.Fprintf(s.out, "\nfailed:\n")
		for _, f := range s.failed {
			fmt.Fprintf(s.out, "  %s\n", f)
		}
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped in %s\n", s.total, len(s.failed), len(s.skips), took.Round(time.Second))
}

func (s *summary) printSkips() {
	if len(s.skips) == 0 {
		return
	}
	fmt.Fprintf(s.out, "\nskipped, and why:\n")
	byReason := map[string][]skip{}
	for _, k := range s.skips {
		byReason[k.reason] = append(byReason[k.reason], k)
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		fmt.Fprintf(s.out, "  %s\n", reason)
		// Many parts of one test are one line.
		parts := map[string][]string{}
		for _, k := range byReason[reason] {
			top, _, _ := strings.Cut(k.test, "/")
			parts[k.pkg+" "+top] = append(parts[k.pkg+" "+top], k.pkg+" "+k.test)
		}
		for _, top := range slices.Sorted(maps.Keys(parts)) {
			if n := len(parts[top]); n > 3 {
				fmt.Fprintf(s.out, "      %s: %d of its parts\n", top, n)
				continue
			}
			for _, t := range parts[top] {
				fmt.Fprintf(s.out, "      %s\n", t)
			}
		}
	}
}

// required returns the skips that match a word of require and none of allow.
func (s *summary) required(require, allow []string) []string {
	matches := func(k skip, words []string) bool {
		text := strings.ToLower(k.String())
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	var found []string
	for _, k := range s.skips {
		wanted := slices.Contains(require, "all") || matches(k, require)
		if wanted && !matches(k, allow) {
			found = append(found, k.String())
		}
	}
	return found
}

// reason is what a skipped test said: its output without the lines of the
// testing package and without "file.go:12: ".
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, rest, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok := strings.Cut(rest, ": "); ok {
				line = text
			}
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return said[len(said)-1]
}

// short is an import path without the module's own prefix.
func short(pkg string) string {
	const module = "github.com/sandgate/sandgate"
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}
