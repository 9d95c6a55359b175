// Package sandgate_test holds the rules of the house that no linter knows: how
// files are named and how long they are, what go.mod pins, what the documents
// have to mention.
//
// It lives at the top because it is about the whole tree, and is all tests, so
// that nothing can import it. Which package may import which is in
// .golangci.yml (depguard), and `make lint` checks that.
package sandgate_test

import (
	"encoding/json"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const maxLines = 400

// Sleeping in a test is allowed where time itself is what is tested, or where
// the other side offers nothing to wait for; the reason stands here.
var sleepers = map[string]string{
	"sandbox/gvisor/victim_test.go": "a server is killed at a dozen moments of its work; the moment is what varies",
}

func TestFilesAreShortAndNamedForWhatTheyHold(t *testing.T) {
	empty := regexp.MustCompile(`(?i)(^|/)(utils?|common|helpers?|misc|types|stuff)(\.go|_test\.go|/)|_impl\.go$`)
	for _, f := range files(t, ".go") {
		if n := strings.Count(read(t, f), "\n"); n > maxLines {
			t.Errorf("%s has %d lines; the house has room for %d: split it by what it holds", f, n, maxLines)
		}
		if empty.MatchString(f) {
			t.Errorf("%s: a name that says nothing about what is in it", f)
		}
	}
}

func TestNothingIsLeftForLater(t *testing.T) {
	later := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b|(?i)not (yet )?implemen` + `ted`)
	for _, f := range files(t, ".go", ".sh", ".md", ".yml", "Makefile", "run") {
		for i, line := range strings.Split(read(t, f), "\n") {
			if m := later.FindString(line); m != "" {
				t.Errorf("%s:%d: %q: do it, or open an issue", f, i+1, m)
			}
		}
	}
}

// A package comment is there for the person who has never seen the package:
// what it is, and what its callers have to know. One sentence is a title.
func TestEveryPackageExplainsItself(t *testing.T) {
	comments := map[string]string{}
	for _, f := range files(t, ".go") {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		file := parse(t, f, parser.PackageClauseOnly|parser.ParseComments)
		comments[filepath.Dir(f)] += file.Doc.Text()
	}
	for dir, text := range comments {
		first := new(doc.Package).Synopsis(text)
		switch {
		case text == "":
			t.Errorf("%s has no package comment", dir)
		case len(strings.Join(strings.Fields(text), " ")) <= len(first)+20:
			t.Errorf("%s: its package comment says only %q", dir, first)
		}
	}
}

func TestTestsDoNotSleep(t *testing.T) {
	used := map[string]bool{}
	for _, f := range files(t, "_test.go") {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, f, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok || call.Sel.Name != "Sleep" {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" {
				used[f] = true
				if sleepers[f] == "" {
					t.Errorf("%s: time.Sleep: wait for what you are waiting for (or give the reason in house_test.go)", fset.Position(call.Pos()))
				}
			}
			return true
		})
	}
	for f := range sleepers {
		if !used[f] {
			t.Errorf("%s is excused for sleeping and does not sleep", f)
		}
	}
}

// Where the code was built, or written, is nobody's business.
func TestNoPathsOfThisMachine(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	personal := regexp.MustCompile(`/(home|Users)/([a-z][a-z0-9_-]*)/`)
	invented := []string{"you", "me", "user", "alice", "bob", "ada"}
	for _, f := range files(t, ".go", ".sh", ".md", ".yml", ".txtar", ".py", ".svg", "Makefile", "run") {
		text := read(t, f)
		// "/src" and the like are too common to mean anything.
		if strings.Count(root, "/") > 1 && strings.Contains(text, root) {
			t.Errorf("%s contains %s", f, root)
		}
		for _, m := range personal.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(invented, m[2]) {
				t.Errorf("%s contains %s", f, m[0])
			}
		}
	}
}

type requirement struct {
	Path, Version string
	Indirect      bool
}

func goMod(t *testing.T) (require []requirement, replace int) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var mod struct {
		Require []requirement
		Replace []json.RawMessage
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	return mod.Require, len(mod.Replace)
}

// Some versions are held back or fixed; an innocent `go get -u` must not get
// past the tests.
func TestPins(t *testing.T) {
	pins := map[string]struct{ version, why string }{
		"gvisor.dev/gvisor":                      {"v0.0.0-20260905035102-160fafc42237", "we use parts of gVisor that promise nothing: read the changes, run the conformance suite, then move"},
		"github.com/opencontainers/runtime-spec": {"v1.2.1", "gVisor's go branch does not build with newer ones"},
		"modernc.org/sqlite":                     {"v1.60.0", "v1.61 needs a version of pprof that the module proxy does not have"},
		"github.com/moby/moby/client":            {"v0.6.2", "tested against engines from API 1.40 on"},
		"github.com/containerd/containerd":       {"", "not wanted: a second container runtime"},
		"github.com/containerd/containerd/v2":    {"", "from v2.4 on it breaks gVisor's build"},
		"github.com/docker/docker":               {"", "frozen; its client is github.com/moby/moby/client now"},
		"github.com/gliderlabs/ssh":              {"", "charm.land/ssh is its maintained fork"},
		"github.com/charmbracelet/wish":          {"", "charm.land/wish/v2 is its home now"},
		"github.com/charmbracelet/bubbletea":     {"", "charm.land/bubbletea/v2 is its home now"},
		"github.com/mattn/go-sqlite3":            {"", "needs cgo"},
		"github.com/golangci/golangci-lint/v2":   {"", "a tool, pinned in the Makefile"},
		"github.com/google/gvisor":               {"", "the module is gvisor.dev/gvisor"},
	}
	require, replaced := goMod(t)
	if replaced > 0 {
		t.Error("go.mod has replace directives; then `go install …@version` does not work")
	}
	seen := map[string]bool{}
	for _, r := range require {
		seen[r.Path] = true
		if pin, ok := pins[r.Path]; ok && r.Version != pin.version {
			if pin.version == "" {
				t.Errorf("%s %s must not be required: %s", r.Path, r.Version, pin.why)
			} else {
				t.Errorf("%s is at %s, pinned to %s: %s", r.Path, r.Version, pin.version, pin.why)
			}
		}
	}
	for path, pin := range pins {
		if pin.version != "" && !seen[path] {
			t.Errorf("%s %s is no longer required; remove its pin", path, pin.version)
		}
	}
}

// docs/dependencies.md has one table row for each direct dependency, with its
// reason, and no other.
func TestEveryDependencyIsAccountedFor(t *testing.T) {
	documented := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9.]+\\.[a-z]+/[^`]+)` \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/dependencies.md"), -1) {
		documented[m[1]] = true
	}
	require, _ := goMod(t)
	for _, r := range require {
		if r.Indirect {
			continue
		}
		if !documented[r.Path] {
			t.Errorf("docs/dependencies.md has no row for %s", r.Path)
		}
		delete(documented, r.Path)
	}
	for path := range documented {
		t.Errorf("docs/dependencies.md has a row for %s, which go.mod does not require directly", path)
	}
}

// A link between the documents that leads nowhere is found here and not by a
// reader.
func TestDocumentLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, f := range files(t, ".md") {
		for _, m := range link.FindAllStringSubmatch(read(t, f), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(f), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", f, m[1])
			}
		}
	}
}

// files lists the tree's files whose names end in one of the suffixes.
func files(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || path == "bin") {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(path, s) }) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func parse(t *testing.T, path string, mode parser.Mode) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, mode)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
