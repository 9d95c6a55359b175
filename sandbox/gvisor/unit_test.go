package gvisor

import (
	"testing"

	"github.com/sandgate/sandgate/sandbox/gvisor/gvisortest"
)

func TestIsRunsc(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want bool
	}{
		{nil, false},
		{[]string{"sandgate", "runsc"}, false},
		{[]string{"/usr/bin/sandgate"}, false},
		{[]string{"runsc"}, true},
		{[]string{"runsc-sandbox", "boot"}, true},
		{[]string{"/somewhere/runsc-gofer"}, true},
		{[]string{"/proc/self/exe", "umount"}, true},
		{[]string{"/srv/runsc-things/sandgate"}, false},
	} {
		if got := IsRunsc(tt.args); got != tt.want {
			t.Errorf("IsRunsc(%q) = %v", tt.args, got)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1: "1", 1000: "1000", 1024: "1Ki", 64 << 20: "64Mi", 3 << 30: "3Gi", 1<<40 + 1: "1099511627777", 1 << 50: "1024Ti"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestStateID(t *testing.T) {
	for name, want := range map[string]string{
		"/x/run/runsc-box_1.sock":          "box_1",
		"/x/run/a-b_sandbox:a-b.state":     "a-b",
		"/x/run/a-b_sandbox:a-b.lock":      "a-b",
		"/x/run/null-netns":                "",
		"/x/run/../../etc_sandbox:x.state": "etc",
		"/x/run/A_sandbox:A.state":         "",
	} {
		if got := stateID(name); got != want {
			t.Errorf("stateID(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestCheckStatic(t *testing.T) {
	if err := checkStatic(gvisortest.Executable(t)); err != nil {
		t.Error(err)
	}
	if err := checkStatic("/bin/ls"); err == nil {
		t.Error("/bin/ls is taken for a static program")
	}
	if err := checkStatic("/etc/passwd"); err == nil {
		t.Error("/etc/passwd is taken for a program")
	}
}
