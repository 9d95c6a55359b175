package drivertest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sandgate/sandgate/sandbox/guest"
)

// refusals are the answers of a kernel that did not even look at what it was
// asked for.
var refusals = []string{syscall.EPERM.Error(), syscall.EACCES.Error(), syscall.ENOSYS.Error()}

// emulated are the calls that a kernel of its own may well grant a sandbox: on
// one that is shared they lead to what others have.
var emulated = []string{"keyctl", "add_key", "userfaultfd"}

// testEscapeCalls holds that root of a sandbox is not root of a machine.
func testEscapeCalls(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		own := b.ownKernel(t)
		for _, user := range []string{"", "user"} {
			results := tries(b.escape(t, user, "calls"))
			if len(results) < 20 {
				t.Errorf("only %d calls were tried", len(results))
			}
			for _, name := range slices.Sorted(maps.Keys(results)) {
				if result := results[name]; !slices.Contains(refusals, result) {
					if own && (result != "granted" || slices.Contains(emulated, name)) {
						t.Logf("%s as %q: %s", name, user, result)
						continue
					}
					t.Errorf("%s as %q: %s", name, user, result)
				}
			}
		}
		// In a user namespace of its own somebody may be root over that.
		for _, user := range []string{"", "user"} {
			r := b.run(t, guest.Command{Args: []string{escapeProgram, "nested", "calls"}, User: user}, "")
			t.Logf("a user namespace for %q: exit %d, %.100s", user, r.exit.Status(), r.stderr)
			for _, name := range []string{"reboot", "settimeofday", "init_module", "finit_module", "kexec_load", "swapon", "acct", "open_by_handle_at"} {
				if result, ok := tries(r.stdout)[name]; ok && !slices.Contains(refusals, result) && (!own || result == "granted") {
					t.Errorf("%s as root of a namespace of %q: %s", name, user, result)
				}
			}
		}
	})
}

// testEscapeDevices holds that no device of the host can be made and opened,
// and that those in /dev are the harmless ones.
func testEscapeDevices(t *testing.T, e *env) {
	harmless := []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console", "pts/ptmx"}
	asked := []string{
		"c:1:1", "c:1:2", "c:1:4", "c:1:11", // mem, kmem, port, kmsg
		"c:10:200", "c:10:229", "c:10:232", "c:10:237", "c:10:238", "c:10:241", "c:4:0", "c:5:1", "c:202:0", // tun, fuse, kvm, loop-control, vhost-net, vhost-vsock, tty0, console, msr
	}
	disks, err := filepath.Glob("/sys/class/block/*/dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(disks[:min(len(disks), 50)], "") {
		number := []byte("7:0\n") // the first loop device
		if name != "" {
			if number, err = os.ReadFile(name); err != nil {
				continue // it was taken away
			}
		}
		asked = append(asked, "b:"+strings.TrimSpace(string(number)))
	}
	e.siege(t, func(b *box) {
		own := b.ownKernel(t)
		if own { // whose devices these are
			harmless = append(harmless, "fuse", "net/tun")
		}
		for _, user := range []string{"", "user"} {
			out := b.escape(t, user, append([]string{"devices"}, asked...)...)
			results := tries(out)
			if len(results) != len(slices.Compact(slices.Sorted(slices.Values(asked)))) {
				t.Errorf("%d of %d devices were tried", len(results), len(asked))
			}
			for name, result := range results {
				if result == "granted" && (!own || name != "c:10:200" && name != "c:10:229") { // the same two
					t.Errorf("device %s opens as %q", name, user)
				}
			}
			for line := range strings.Lines(out) {
				if name, ok := strings.CutPrefix(strings.TrimSpace(line), "found /dev/"); ok && !slices.Contains(harmless, name) {
					t.Errorf("there is /dev/%s", name)
				}
			}
		}
		b.refuses(t, "head -c 16 /dev/mem || head -c 16 /dev/kmem || head -c 16 /dev/port || head -c 16 /dev/kmsg")
		for _, disk := range disks[:min(len(disks), 5)] {
			b.refuses(t, "mount -t ext4 /dev/"+filepath.Base(filepath.Dir(disk))+" /mnt")
		}
	})
}

// testEscapeKernelFiles holds that what lies in /proc and /sys can neither be
// written to, where it is the host's, nor tells its secrets.
func testEscapeKernelFiles(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		own := b.ownKernel(t)
		for _, user := range []string{"", "user"} {
			var open []string
			for line := range strings.Lines(b.escape(t, user, "writable", "/proc", "/sys")) {
				if name := strings.TrimSpace(line); strings.HasPrefix(name, "/proc/pressure/") {
					continue // asks to be told about pressure, for oneself
				} else if strings.HasPrefix(name, "/") {
					open = append(open, name)
				} else {
					t.Logf("as %q: %s", user, name)
				}
			}
			if len(open) > 0 && own {
				t.Logf("as %q, in a kernel of its own: %q", user, open)
			} else if len(open) > 0 {
				t.Errorf("files of the kernel are open to %q: %q", user, open)
			}
		}
		for _, name := range settings {
			// What is there already, so that nothing changes where it goes through.
			script := fmt.Sprintf("v=$(cat /proc/sys/%[1]s) && echo \"$v\" >/proc/sys/%[1]s", name)
			if r := b.try(t, script); r.exit.Status() == 0 && !own {
				t.Errorf("%s can be set", name)
			}
		}
		for _, script := range []string{
			"echo h >/proc/sysrq-trigger",
			"cat /sys/kernel/uevent_helper && echo >/sys/kernel/uevent_helper",
			"echo mem >/sys/power/state",
			"echo ':x:M::x::/x:' >/proc/sys/fs/binfmt_misc/register",
			"find /sys/fs/cgroup -name release_agent | head -n 1 | grep . && for f in $(find /sys/fs/cgroup -name release_agent); do echo /x >$f || exit 1; done",
			"for f in $(find /sys/fs/cgroup -name memory.max -o -name pids.max -o -name cgroup.procs -o -name memory.limit_in_bytes | head -n 20) /proc/none; do echo 0 >$f || exit 1; done",
			"s=1; for d in /sys/fs/cgroup /sys/fs/cgroup/*; do [ -e $d/cgroup.procs ] && mkdir $d/escaped && s=0; done; exit $s",
			"[ $(head -c 65536 /proc/kcore | wc -c) -gt 0 ]",
			"[ $(cat /proc/keys /proc/timer_list /proc/sched_debug /sys/firmware/* 2>/dev/null | wc -c) -gt 0 ]",
			"timeout 2 head -c 1 /proc/kmsg | grep -q .",
		} {
			b.refuses(t, script)
		}
		// What the kernel shows of paths must not name the host's.
		if got := b.try(t, "cat /proc/self/mountinfo /proc/1/mountinfo /proc/mounts").stdout; strings.Contains(got, e.state) {
			t.Errorf("the state folder is named in %q", got)
		}
	})
}

// testEscapeTerminals holds that input cannot be forged on a terminal of
// somebody else.
func testEscapeTerminals(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		out := newScreen()
		p, err := b.conn.Start(ctx(t), guest.Command{
			ID: newID(), Args: []string{"/bin/sh", "-c", "stty -echo; echo ready; cat"}, TTY: &guest.TTY{Term: "xterm", Size: guest.Size{Rows: 20, Cols: 80}},
		}, guest.Output{Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		out.wait(t, "ready\r\n")
		for _, user := range []string{"user", ""} {
			for name, result := range tries(b.escape(t, user, "terminals")) {
				if result == "granted" {
					t.Errorf("%s as %q: %s", name, user, result)
				}
			}
		}
		if _, err := p.Write([]byte("end\n")); err != nil {
			t.Fatal(err)
		}
		out.wait(t, "end\r\n")
		if got := out.String(); strings.Contains(got, "x") {
			t.Errorf("the terminal of root got %q", got)
		}
	})
}
