package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/api"
)

func TestSnapshots(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "dev", "--env", "SECRET=1")
	c.ok("exec", "dev", "--", "sh", "-c", "printf 'one\n' >f; mkdir d; printf x >d/y")
	first := strings.TrimSpace(c.ok("snapshot", "create", "dev", "--tag", "v1", "--name", "app", "--description", "a\x1bb"))
	if !strings.HasPrefix(first, "snp_") {
		t.Fatalf("snapshot create printed %q", first)
	}
	made := strings.TrimSpace(c.ok("create", "--snapshot", "v1", "--name", "from"))
	if out := c.ok("exec", "from", "--", "sh", "-c", "cat f d/y; echo $SECRET"); out != "one\nx\n" {
		t.Errorf("from the snapshot: %q", out)
	}
	if out := c.ok("get", "from"); !strings.Contains(out, first+" (v1)") {
		t.Errorf("get printed %q", out)
	}
	c.ok("exec", "from", "--", "sh", "-c", "echo two >>f; rm d/y; echo new >n")
	second := strings.TrimSpace(c.ok("snapshot", "new", "from", "--public"))
	if out := c.ok("snapshot", "ls"); !strings.Contains(out, first) || !strings.Contains(out, second) || !strings.Contains(out, "latest") {
		t.Errorf("snapshot list printed %q", out)
	}
	if out := c.ok("snapshot", "list", "--sandbox", "from", "--json"); !strings.Contains(out, second) || strings.Contains(out, `"snapshotId": "`+first) {
		t.Errorf("snapshot list --sandbox printed %q", out)
	}
	if out := c.ok("snapshot", "list", "--public", "--json"); !strings.Contains(out, second) || strings.Contains(out, `"tag": "v1"`) {
		t.Errorf("snapshot list --public printed %q", out)
	}
	if out := c.ok("snapshot", "get", "v1"); !strings.Contains(out, made+" (from)") || strings.Contains(out, "\x1b") {
		t.Errorf("snapshot get printed %q", out)
	}
	if out := c.ok("snapshot", "lineage", "latest"); strings.Index(out, second) > strings.Index(out, first) || !strings.Contains(out, first) {
		t.Errorf("lineage printed %q", out)
	}
	if out := c.ok("snapshot", "diff", "snapshot:v1", "from"); !strings.Contains(out, "M /") || !strings.Contains(out, "/f") || !strings.Contains(out, "D ") || !strings.Contains(out, "A ") {
		t.Errorf("diff printed %q", out)
	}
	var changes api.ChangeList
	if err := json.Unmarshal([]byte(c.ok("snapshot", "diff", first, second, "--json", "--limit", "1")), &changes); err != nil || len(changes.Changes) != 1 || changes.Total < 3 {
		t.Errorf("diff --json: %+v, %v", changes, err)
	}
	if out := c.ok("snapshot", "diff", first, second, "--file", "f"); !strings.Contains(out, " one\n+two\n") {
		t.Errorf("diff --file printed %q", out)
	}
	if out := c.ok("snapshot", "tag", first, "v2"); out != first+" is v2\n" {
		t.Errorf("tag printed %q", out)
	}
	if out := c.ok("snapshot", "tag", "v2", "--clear"); out != first+" has no tag\n" {
		t.Errorf("tag --clear printed %q", out)
	}
	for _, tc := range []struct {
		code int
		want string
		args []string
	}{
		{1, "in use by sandboxes " + made, []string{"snapshot", "delete", first}},
		{1, "v1", []string{"snapshot", "get", "v1"}},
		{2, "tag", []string{"snapshot", "tag", first}},
		{2, "tag", []string{"snapshot", "tag", first, "not a tag"}},
		{2, "compare", []string{"snapshot", "diff", "a/b", "dev"}},
		{2, "id of the snapshot", []string{"snapshot", "get", "public"}},
		{2, "--limit", []string{"snapshot", "list", "--limit", "0"}},
		{1, "cannot export", []string{"snapshot", "export", first, "-"}},
		{2, "gateway", []string{"snapshot", "export", first, "/tmp/x"}},
		{1, "cannot export and import", []string{"snapshot", "import", "-"}},
	} {
		if r := c.run(strings.NewReader(""), nil, tc.args...); r.code != tc.code || !strings.Contains(r.stderr, tc.want) {
			t.Errorf("%q: %+v", tc.args, r)
		}
	}
	c.ok("delete", "from")
	if r := c.run(nil, nil, "snapshot", "delete", first); r.code != 1 || !strings.Contains(r.stderr, second) {
		t.Errorf("delete of a parent: %+v", r)
	}
	if out := c.ok("snapshot", "rm", first, "--cascade"); out != "deleted "+first+"\n" {
		t.Errorf("delete printed %q", out)
	}
	if out := c.ok("snapshot", "list", "--json"); !strings.Contains(out, `"total": 0`) {
		t.Errorf("after all: %q", out)
	}
}

func TestCheckpoints(t *testing.T) {
	c := newTerminalless(t)
	c.ok("create", "--name", "dev")
	c.ok("exec", "dev", "--", "sh", "-c", "echo good >f")
	id := strings.TrimSpace(c.ok("ckpt", "create", "dev", "before"))
	if !strings.HasPrefix(id, "ckpt_") {
		t.Fatalf("checkpoint create printed %q", id)
	}
	c.ok("checkpoint", "create", "dev") // named by the time
	c.ok("exec", "dev", "--", "sh", "-c", "echo bad >f")
	if out := c.ok("checkpoint", "list", "dev"); !strings.Contains(out, id) || !strings.Contains(out, "before") || strings.Count(out, "ckpt_") != 2 {
		t.Errorf("checkpoint list printed %q", out)
	}
	if out := c.ok("snapshot", "diff", "dev@before", "dev"); !strings.HasSuffix(out, "/f\n") || !strings.HasPrefix(out, "M ") {
		t.Errorf("diff printed %q", out)
	}
	c.ok("checkpoint", "restore", "dev", "before")
	if out := c.ok("exec", "dev", "--", "cat", "f"); out != "good\n" {
		t.Errorf("after the restore: %q", out)
	}
	for _, args := range [][]string{{"ckpt", "create", "dev", "before"}, {"ckpt", "restore", "dev", "none"}, {"ckpt", "list", "nobody"}, {"ckpt", "delete", "dev", "none"}} {
		if r := c.run(nil, nil, args...); r.code != 1 || r.stderr == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if out := c.ok("ckpt", "rm", "dev", id, "--json"); !strings.Contains(out, id) {
		t.Errorf("delete printed %q", out)
	}
	if out := c.ok("ckpt", "ls", "dev", "--json"); strings.Contains(out, id) {
		t.Errorf("after the delete: %q", out)
	}
}
