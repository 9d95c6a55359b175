package agent

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// user is whom a process runs as.
type user struct {
	name     string
	uid, gid uint32
	groups   []uint32 // supplementary
	home     string
	shell    string
}

// lookupUser finds the user that a command names: a name or a number, with a
// group after a colon if need be, as container images write it. The empty
// name is the user that the guest runs as, which is root. To root, an account
// file that cannot be read is as good as none: somebody has to mend it.
func (a *Agent) lookupUser(spec string) (user, error) {
	name, group, hasGroup := strings.Cut(spec, ":")
	if name == "" {
		name = strconv.Itoa(os.Geteuid())
	}
	mender := !hasGroup && (name == "0" || name == "root")
	passwd, err := a.passwd.lines()
	if err != nil && !mender {
		return user{}, err
	}
	who, ok := findUser(passwd, name)
	if !ok {
		return user{}, fault.InvalidField("user", "there is no user %q in the sandbox", wire.Printable(name, 64))
	}
	groups, err := a.group.lines()
	if err != nil && !mender {
		return user{}, err
	}
	if hasGroup {
		if who.gid, ok = findGroup(groups, group); !ok {
			return user{}, fault.InvalidField("user", "there is no group %q in the sandbox", wire.Printable(group, 64))
		}
	}
	who.groups = memberships(groups, who)
	return who, nil
}

// findUser looks a name or number up. A number that no account has is a user
// all the same, in group 0 and at home in the root directory.
func findUser(passwd [][]string, name string) (user, bool) {
	number, isNumber := id(name)
	for _, line := range passwd {
		uid, ok := id(line[2])
		gid, ok2 := id(line[3])
		if !ok || !ok2 || line[0] == "" {
			continue
		}
		if line[0] == name || isNumber && uid == number {
			return user{name: line[0], uid: uid, gid: gid, home: homeOf(line[5]), shell: line[6]}, true
		}
	}
	switch {
	case isNumber && number == 0, name == "root":
		return user{name: "root", home: "/root"}, true
	case isNumber:
		return user{name: name, uid: number, home: "/"}, true
	}
	return user{}, false
}

func homeOf(dir string) string {
	if !strings.HasPrefix(dir, "/") {
		return "/"
	}
	return dir
}

func findGroup(groups [][]string, name string) (uint32, bool) {
	for _, line := range groups {
		if gid, ok := id(line[2]); ok && line[0] == name && name != "" {
			return gid, true
		}
	}
	return id(name)
}

// maxGroups is the kernel's own bound (NGROUPS_MAX).
const maxGroups = 65536

// memberships are the groups that list the user, and the user's own.
func memberships(groups [][]string, who user) []uint32 {
	list := []uint32{who.gid}
	for _, line := range groups {
		gid, ok := id(line[2])
		if ok && len(list) < maxGroups && slices.Contains(strings.Split(line[3], ","), who.name) && !slices.Contains(list, gid) {
			list = append(list, gid)
		}
	}
	return list
}

// id parses a user or group number; the largest one is the kernel's "none".
func id(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 1<<32-1 || len(s) > 10 || s[0] == '+' {
		return 0, false
	}
	return uint32(n), true
}

// switches reports whether running as the user needs a change of identity.
// Where it does not, nothing is changed: a container may lack the right.
func (u user) switches() bool {
	return int(u.uid) != os.Geteuid() || int(u.gid) != os.Getegid()
}

func (u user) credential() *syscall.Credential {
	if !u.switches() {
		return nil
	}
	return &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: u.groups}
}

// mayEnter reports whether the mode of a directory lets the user enter it.
func (u user) mayEnter(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || u.uid == 0:
		return true
	case st.Uid == u.uid:
		return info.Mode()&0o100 != 0
	case st.Gid == u.gid || slices.Contains(u.groups, st.Gid):
		return info.Mode()&0o010 != 0
	}
	return info.Mode()&0o001 != 0
}
