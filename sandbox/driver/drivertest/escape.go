package drivertest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// The escape tests attack from inside, with a program made for it (package
// escape) and as root of the sandbox where nothing else is said. Each runs
// beside a neighbour that has to go on answering, on a host that has to be
// afterwards what it was before; see siege.
func escapeTests() []test {
	return []test{
		{name: "Escape/Calls", walls: true, run: testEscapeCalls},
		{name: "Escape/Devices", walls: true, run: testEscapeDevices},
		{name: "Escape/KernelFiles", walls: true, run: testEscapeKernelFiles},
		{name: "Escape/Doors", walls: true, run: testEscapeDoors},
		{name: "Escape/Accounts", walls: true, run: testHostileAccounts},
		{name: "Escape/Programs", walls: true, run: testEscapePrograms},
		{name: "Escape/BootFiles", walls: true, run: testEscapeBootFiles},
		{name: "Escape/Terminals", walls: true, run: testEscapeTerminals},
		{name: "Escape/Sockets", walls: true, run: testEscapeSockets},
		{name: "Escape/PIDOneAsUser", walls: true, run: testPIDOneAsUser},
		{name: "Escape/PIDOneAsRoot", walls: true, run: testPIDOneAsRoot},
		{name: "Escape/PIDOneTraced", walls: true, run: testPIDOneTraced},
		{name: "Escape/RelayFlood", walls: true, run: testRelayFlood},
		{name: "Hogs/Forks", walls: true, needs: driver.FeatureProcessLimit, run: testForkBomb},
		{name: "Hogs/ForksWithoutLimit", walls: true, run: testForkBombWithoutLimit},
		{name: "Hogs/Threads", walls: true, needs: driver.FeatureProcessLimit, run: testThreadBomb},
		{name: "Hogs/Zombies", walls: true, run: testZombies},
		{name: "Hogs/Memory", walls: true, needs: driver.FeatureMemoryLimit, run: testMemoryHog},
		{name: "Hogs/SharedMemory", walls: true, needs: driver.FeatureMemoryLimit, run: testSharedMemoryHog},
		{name: "Hogs/Disk", walls: true, needs: driver.FeatureDiskLimit, run: testDiskHog},
		{name: "Hogs/Inodes", walls: true, run: testInodeHog},
		{name: "Hogs/Descriptors", walls: true, run: testDescriptorHog},
		{name: "Hogs/Watches", walls: true, run: testWatchHog},
		{name: "Floods/OutputNobodyReads", walls: true, run: testOutputNobodyReads},
		{name: "Floods/OutputReadSlowly", walls: true, run: testOutputReadSlowly},
		{name: "Floods/Arguments", walls: true, run: testBigArguments},
		{name: "Floods/Names", walls: true, run: testBigNames},
	}
}

// answerWithin bounds how long a neighbour may take for one command during an
// attack, on a machine that others load as well.
const answerWithin = 15 * time.Second

// hostSlack is what memory and processes of the host may differ by after an
// attack: others use the machine too, so only what nobody overlooks counts.
const (
	memorySlack  = 1 << 30
	processSlack = 1000
)

// siege attacks from a new sandbox, and holds that meanwhile a neighbour
// answers, and that after the removal of the sandbox the host has its memory,
// its processes and its files as before.
func (e *env) siege(t *testing.T, attack func(b *box), change ...func(*driver.Spec)) {
	t.Helper()
	neighbour := e.boot(t)
	b := e.boot(t, change...)
	b.arm(t)
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte(secretValue), 0o666); err != nil {
		t.Fatal(err)
	}
	before, files := vitals(t), hostFiles(t, e, canary)

	over, stop := context.WithCancel(ctx(t))
	pulse := make(chan []time.Duration)
	go func() { pulse <- heartbeat(over, t, neighbour) }()
	begin := time.Now()
	func() {
		defer func() { // also after a Fatal
			stop()
			beats := <-pulse
			if len(beats) == 0 {
				t.Errorf("the neighbour answered nothing in %v", time.Since(begin))
				return
			}
			slices.Sort(beats)
			t.Logf("attack %.1fs; the neighbour answered %d times, median %v, worst %v", time.Since(begin).Seconds(),
				len(beats), beats[len(beats)/2].Round(10*time.Microsecond), beats[len(beats)-1].Round(10*time.Microsecond))
			if worst := beats[len(beats)-1]; worst > answerWithin {
				t.Errorf("the neighbour waited %v for a command", worst)
			}
		}()
		attack(b)
	}()
	during := vitals(t)
	e.remove(t, b.id)
	neighbour.sh(t, "true")
	after := recovered(t, before)
	t.Logf("host: memory available %d → %d → %d MiB, processes %d → %d → %d, this process %d → %d → %d MiB", before.memory>>20, during.memory>>20, after.memory>>20,
		before.processes, during.processes, after.processes, before.own>>20, during.own>>20, after.own>>20)
	for name, sum := range hostFiles(t, e, canary) {
		if files[name] != sum {
			t.Errorf("%s of the host has changed", name)
		}
	}
}

// heartbeat runs a command in the neighbour again and again, and returns how
// long each took.
func heartbeat(c context.Context, t *testing.T, b *box) []time.Duration {
	var beats []time.Duration
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		begin := time.Now()
		p, err := b.conn.Start(c, guest.Command{ID: newID(), Args: []string{"true"}, NoStdin: true}, guest.Output{})
		var exit guest.Exit
		if err == nil {
			exit, err = p.Wait(c)
		}
		if c.Err() != nil {
			// What was under way when the attack ended counts for as long as it
			// has taken so far: an attack may last just as long as it stalls.
			return append(beats, time.Since(begin))
		}
		if err != nil || exit.Status() != 0 {
			t.Errorf("the neighbour's command ended with %+v, %v", exit, err)
			return beats
		}
		beats = append(beats, time.Since(begin))
		select {
		case <-tick.C:
		case <-c.Done():
			return beats
		}
	}
}

// arm puts the attacking program into the sandbox, where every user runs it.
func (b *box) arm(t *testing.T) {
	t.Helper()
	f, err := os.Open(b.escapePath())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := b.conn.WriteFile(ctx(t), escapeProgram, 0o755, f); err != nil {
		t.Fatal(err)
	}
}

// escapeProgram is where arm puts it.
const escapeProgram = "/tmp/escape"

// escape runs a command of the attacking program to its end and returns what
// it printed.
func (b *box) escape(t *testing.T, user string, args ...string) string {
	t.Helper()
	r := b.run(t, guest.Command{Args: append([]string{escapeProgram}, args...), User: user}, "")
	if r.exit != (guest.Exit{}) {
		t.Fatalf("escape %q as %q ended with %+v: %.2000s", args, user, r.exit, r.stdout+r.stderr)
	}
	return r.stdout
}

// tries reads what came of each try.
func tries(output string) map[string]string {
	results := map[string]string{}
	for line := range strings.Lines(output) {
		if i := strings.LastIndex(line, ": "); i > 0 {
			results[line[:i]] = strings.TrimSpace(line[i+2:])
		}
	}
	return results
}

// ownKernel reports whether a sandbox runs on another kernel than the host's:
// what it may ask that kernel for, it asks nobody else.
func (b *box) ownKernel(t *testing.T) bool {
	t.Helper()
	host, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	return b.sh(t, "cat /proc/version") != strings.TrimSpace(string(host))
}

// hostState is how the host does.
type hostState struct {
	memory    int64 // available
	own       int64 // resident in this process
	processes int
}

func vitals(t testing.TB) hostState {
	t.Helper()
	var s hostState
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := bytes.Cut(text, []byte("MemAvailable:"))
	_, err = fmt.Sscan(string(line), &s.memory)
	s.memory <<= 10
	list, gerr := filepath.Glob("/proc/[0-9]*")
	s.processes = len(list)
	if err := cmp.Or(err, gerr); err != nil {
		t.Fatal(err)
	}
	s.own = resident(t)
	return s
}

// resident is the memory of this process.
func resident(t testing.TB) int64 {
	t.Helper()
	var size, pages int64
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &pages)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// recovered waits until the host has its memory and processes back.
func recovered(t *testing.T, before hostState) hostState {
	t.Helper()
	c := ctx(t)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now := vitals(t)
		if now.memory > before.memory-memorySlack && now.processes < before.processes+processSlack {
			return now
		}
		select {
		case <-tick.C:
		case <-c.Done():
			t.Errorf("after the attack the host has %d MiB and %d processes, before it had %d MiB and %d",
				now.memory>>20, now.processes, before.memory>>20, before.processes)
			return now
		}
	}
}

// hostFiles digests what an intruder would change first: settings of the
// kernel, files that drivers make views of, the programs that start sandboxes.
func hostFiles(t *testing.T, e *env, more ...string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	names := append(more, e.h.Guest.Path, filepath.Join(e.h.Rootfs.Layers[0], "bin/busybox"), "/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/etc/passwd",
		"/sys/kernel/uevent_helper", "/proc/sys/net/ipv4/ip_forward")
	for _, setting := range settings {
		names = append(names, "/proc/sys/"+setting)
	}
	for _, name := range names {
		content, err := os.ReadFile(name) // what is missing, or closed to us, stays so
		sums[name] = fmt.Sprintf("%x %v", sha256.Sum256(content), err)
	}
	for _, program := range []string{"runc", "crun", "containerd-shim-runc-v2", "dockerd"} {
		if path, err := exec.LookPath(program); err == nil {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			sums[path] = fmt.Sprint(info.Size(), info.Mode(), info.ModTime())
		}
	}
	return sums
}

// settings of a kernel that say what it runs, loads, or does with who asks.
var settings = []string{
	"kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/sysrq", "kernel/hostname", "kernel/domainname", "kernel/pid_max", "kernel/randomize_va_space",
	"kernel/kptr_restrict", "kernel/dmesg_restrict", "kernel/core_uses_pid", "kernel/poweroff_cmd", "kernel/usermodehelper/bset", "vm/overcommit_memory", "vm/panic_on_oom",
	"fs/suid_dumpable", "fs/file-max", "fs/protected_symlinks", "fs/protected_hardlinks",
}
