package agent

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

const passwdFile = `root:x:0:0:root:/root:/bin/bash
# a comment
broken
also:broken:x
neg:x:-1:0::/:/bin/sh
big:x:4294967295:0::/:/bin/sh
none:x::0::/:/bin/sh
dev:x:1000:1001:Dev,,,:/home/dev:/bin/zsh
crlf:x:1002:1002::/home/crlf:/bin/sh` + "\r" + `
relative:x:1003:1003::home:/bin/sh
noshell:x:1004:1004::/home/noshell:
twin:x:1000:5::/:/bin/sh
+nis::::::
`

const groupFile = `root:x:0:
dev:x:1001:
audio:x:29:other,dev
wheel:x:10:dev
again:x:29:dev
bad:x:x:dev
`

func agentWithAccounts(t *testing.T, passwd, group string) *Agent {
	t.Helper()
	etc := t.TempDir()
	for name, content := range map[string]string{"passwd": passwd, "group": group} {
		if content != "" {
			if err := os.WriteFile(filepath.Join(etc, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return New(Config{Etc: etc})
}

func TestLookupUser(t *testing.T) {
	a := agentWithAccounts(t, passwdFile, groupFile)
	dev := user{name: "dev", uid: 1000, gid: 1001, groups: []uint32{1001, 29, 10}, home: "/home/dev", shell: "/bin/zsh"}
	devInWheel := dev
	devInWheel.gid, devInWheel.groups = 10, []uint32{10, 29}
	for spec, want := range map[string]user{
		"root":      {name: "root", groups: []uint32{0}, home: "/root", shell: "/bin/bash"},
		"0":         {name: "root", groups: []uint32{0}, home: "/root", shell: "/bin/bash"},
		"dev":       dev,
		"1000":      dev,
		"dev:10":    devInWheel,
		"dev:wheel": devInWheel,
		"4711":      {name: "4711", uid: 4711, groups: []uint32{0}, home: "/"},
		"4711:42":   {name: "4711", uid: 4711, gid: 42, groups: []uint32{42}, home: "/"},
		"crlf":      {name: "crlf", uid: 1002, gid: 1002, groups: []uint32{1002}, home: "/home/crlf", shell: "/bin/sh"},
		"relative":  {name: "relative", uid: 1003, gid: 1003, groups: []uint32{1003}, home: "/", shell: "/bin/sh"},
		"noshell":   {name: "noshell", uid: 1004, gid: 1004, groups: []uint32{1004}, home: "/home/noshell"},
	} {
		if got, err := a.lookupUser(spec); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v %v, want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{"nobody-here", "neg", "big", "none", "-1", "4294967295", "99999999999", "dev:nogroup", "dev:", "+nis", "a b"} {
		if got, err := a.lookupUser(spec); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %+v %v", spec, got, err)
		}
	}
}

func TestLookupUserWithoutFiles(t *testing.T) {
	a := agentWithAccounts(t, "", "")
	if got, err := a.lookupUser("root"); err != nil || got.uid != 0 || got.home != "/root" {
		t.Errorf("%+v %v", got, err)
	}
}

// Who owns the sandbox may put anything in the place of its account files.
func TestHostileAccounts(t *testing.T) {
	a := agentWithAccounts(t, strings.Repeat("x", 3<<20)+"\ndev:x:1:1::/:/bin/sh\n", "")
	if _, err := a.lookupUser("dev"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a line of 3 MiB: %v", err)
	}
	etc := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(etc, "passwd"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Etc: etc}).lookupUser("dev"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
	a = agentWithAccounts(t, passwdFile, strings.Repeat("many:x:7:dev\n", 80_000)+strings.Repeat("a,", 1<<18))
	if got, err := a.lookupUser("dev"); err != nil || len(got.groups) != 2 {
		t.Errorf("many groups: %d %v", len(got.groups), err)
	}
}

// Accounts that were read before are read again when they have changed.
func TestAccountsChange(t *testing.T) {
	a := agentWithAccounts(t, passwdFile, groupFile)
	path := filepath.Join(a.cfg.Etc, "passwd")
	for _, add := range []string{"", "late:x:1:1::/:/bin/sh\n", ""} {
		if err := os.WriteFile(path, []byte(passwdFile+add), 0o644); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := a.lookupUser("late"); (err == nil) != (add != "") {
				t.Errorf("with %q: %v", add, err)
			}
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := a.lookupUser("dev"); err == nil {
		t.Error("a user of a file that is gone")
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add(passwdFile, groupFile, "dev")
	f.Add("a:b:c:d:e:f:g\n::::::\n", ":::\nx:y:0:a,,b", "0")
	f.Fuzz(func(t *testing.T, passwd, group, name string) {
		who, ok := findUser(parseAccounts(passwd, 7), name)
		if !ok {
			return
		}
		if who.name == "" || !strings.HasPrefix(who.home, "/") || strings.ContainsAny(who.home+who.shell+who.name, "\x00\n:") && who.name != name {
			t.Errorf("%+v", who)
		}
		groups := memberships(parseAccounts(group, 4), who)
		if len(groups) == 0 || groups[0] != who.gid || len(groups) > maxGroups {
			t.Errorf("%v", groups)
		}
	})
}

func TestEnvironment(t *testing.T) {
	a := New(Config{Env: []string{"PATH=/image/bin", "LANG=C", "HOME=/wrong", "broken", "=x"}})
	who := user{name: "dev", home: "/home/dev", shell: "/no/such/shell"}
	env := a.environment(who, guest.Command{Env: []string{"LANG=de", "A=1", "A=2"}, TTY: &guest.TTY{Term: "screen"}})
	for name, want := range map[string]string{
		"PATH": "/image/bin", "LANG": "de", "HOME": "/home/dev", "USER": "dev", "LOGNAME": "dev",
		"SHELL": "/no/such/shell", "A": "2", "TERM": "screen",
	} {
		if got := variable(env, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if len(env) != 8 {
		t.Errorf("environment %q", env)
	}
	if got := variable(New(Config{}).environment(who, guest.Command{}), "PATH"); got != defaultPath {
		t.Errorf("PATH is %q without one of the image", got)
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"run": 0o755, "data": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path string
		code       int
	}{
		{"run", dir, 0},
		{"run", "/nowhere:" + dir, 0},
		{"run", ".", 0}, // relative to the working directory
		{"./run", "", 0},
		{dir + "/run", "", 0},
		{"run", "/nowhere", 127},
		{"run", "", 127},
		{"data", dir, 126},
		{"data", dir + ":/nowhere", 126},
		{"sub", dir, 127},
		{"./sub", "", 126},
		{"", dir, 127},
		{"./none", "", 127},
		{"./run/x", "", 126},
	} {
		got, problem := lookPath([]string{tc.name}, tc.path, dir)
		code := 0
		if problem != nil {
			code = problem.code
		}
		if code != tc.code || code == 0 && got.path != filepath.Join(dir, "run") {
			t.Errorf("%q in %q: %q %+v", tc.name, tc.path, got, problem)
		}
	}
}
