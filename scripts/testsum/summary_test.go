package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun drives the real go test over a module made for it: the events are
// the toolchain's own, not a copy that may go stale.
func TestRun(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "go.mod", "module github.com/sandgate/sandgate\n\ngo 1.26\n")
	write(t, "good/good_test.go", `package good
import "testing"
func TestOne(t *testing.T) {}
func TestEngine(t *testing.T) { t.Log("looking"); t.Skip("docker: no engine answers") }
func TestSub(t *testing.T) { t.Run("a", func(t *testing.T) { t.Skip("needs tmux") }) }
`)
	write(t, "bad/bad_test.go", `package bad
import "testing"
func TestBad(t *testing.T) { t.Error("this is why") }
`)
	write(t, "broken/broken_test.go", "package broken\nfunc broken() { undefined() }\n")
	write(t, "dead/dead_test.go", `package dead
import ("fmt"; "os"; "testing")
func TestDead(t *testing.T) { fmt.Println("last words"); os.Exit(3) }
`)

	tests := []struct {
		name    string
		args    []string
		env     map[string]string
		status  int
		want    []string
		wantNot []string
	}{
		{
			name: "skips are shown with their reasons", args: []string{"./good"}, status: 0,
			want:    []string{"ok    good", "docker: no engine answers\n      good TestEngine", "needs tmux\n      good TestSub/a", "2 passed, 0 failed, 2 skipped"},
			wantNot: []string{"looking", "must not"},
		},
		{
			name: "a required word in a reason fails", args: []string{"./good"}, env: map[string]string{"SANDGATE_TEST_REQUIRE": "gvisor, Docker"}, status: 1,
			want: []string{"must not be skipped here: good TestEngine: docker"}, wantNot: []string{"here: good TestSub"},
		},
		{
			name: "all with an excuse", args: []string{"./good"}, env: map[string]string{"SANDGATE_TEST_REQUIRE": "all", "SANDGATE_TEST_ALLOW_SKIP": "tmux,no engine"}, status: 0,
			wantNot: []string{"must not"},
		},
		{
			name: "all without one", args: []string{"./good"}, env: map[string]string{"SANDGATE_TEST_REQUIRE": "all"}, status: 1,
			want: []string{"here: good TestEngine", "here: good TestSub/a"},
		},
		{name: "a failure shows its output", args: []string{"./bad"}, status: 1, want: []string{"this is why", "bad TestBad", "0 passed, 1 failed"}},
		{name: "a package that does not compile", args: []string{"./broken"}, status: 1, want: []string{"undefined: undefined", "broken (outside of its tests)"}},
		{name: "a process that dies", args: []string{"./dead"}, status: 1, want: []string{"last words", "1 failed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if got := run(tt.args, func(k string) string { return tt.env[k] }, &out); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			for _, w := range tt.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("no %q in:\n%s", w, out.String())
				}
			}
			for _, w := range tt.wantNot {
				if strings.Contains(out.String(), w) {
					t.Errorf("%q in:\n%s", w, out.String())
				}
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAgain lets tests fail the first time they run.
func TestAgain(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "go.mod", "module github.com/sandgate/sandgate\n\ngo 1.26\n")
	const once = `
import ("os"; "testing")
func once(t *testing.T, name string) {
	if _, err := os.Stat(name); err != nil {
		os.WriteFile(name, nil, 0o600)
		t.Fatal("the first time")
	}
}
`
	write(t, "flaky/flaky_test.go", "package flaky"+once+`
func TestGood(t *testing.T) {}
func TestFlaky(t *testing.T) { t.Run("part", func(t *testing.T) { once(t, "1") }) }
`)
	write(t, "dies/dies_test.go", "package dies"+once+`
func TestDies(t *testing.T) {
	if _, err := os.Stat("1"); err != nil {
		os.WriteFile("1", nil, 0o600)
		os.Exit(3)
	}
}
func TestLast(t *testing.T) { _ = once }
`)
	var out bytes.Buffer
	if code := run([]string{"./..."}, func(string) string { return "" }, &out); code != 0 {
		t.Fatalf("exit status %d\n%s", code, out.String())
	}
	for _, want := range []string{"flaky: failed among the others", "  flaky ^(TestFlaky)$", "  dies "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	write(t, "many/many_test.go", "package many"+once+`
func TestA(t *testing.T) { once(t, "a") }
func TestB(t *testing.T) { once(t, "b") }
func TestC(t *testing.T) { once(t, "c") }
func TestD(t *testing.T) { once(t, "d") }
func TestE(t *testing.T) { once(t, "e") }
func TestF(t *testing.T) { once(t, "f") }
`)
	if code := run([]string{"./..."}, func(string) string { return "" }, &out); code == 0 {
		t.Error("six failures must not be taken for an accident")
	}
	write(t, "always/always_test.go", "package always\nimport \"testing\"\nfunc TestAlways(t *testing.T) { t.Fatal(\"no\") }\n")
	if code := run([]string{"./..."}, func(string) string { return "" }, &out); code == 0 {
		t.Error("a test that fails twice must fail the run")
	}
}
