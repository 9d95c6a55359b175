package image

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

const (
	maxProgressLine = 160
	keptErrorLines  = 12
)

// slimming keeps out of the layer, now and when packages are installed later,
// what nobody reads in a sandbox, and spares the disk a flush for every file.
// The container images of Debian do the same.
var slimming = []string{
	"force-unsafe-io",
	"path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright",
	"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/locale/*", "path-include=/usr/share/locale/locale.alias",
}

// bootstrapJob is one run of mmdebstrap.
type bootstrapJob struct {
	program  string
	suite    string   // codename
	sources  []string // lines of sources.list
	packages []string
	date     time.Time // of the release; makes two runs give the same files
	apt      aptSettings
	scratch  string
	asRoot   bool
	grace    time.Duration // between asking it to end and killing it
}

// bootstrapError is a failed run with what mmdebstrap said about it.
type bootstrapError struct {
	err   error
	lines []string // its last lines, the oldest first
}

func (e *bootstrapError) Error() string {
	return fmt.Sprintf("mmdebstrap: %v: %s", e.err, strings.Join(e.lines, " | "))
}
func (e *bootstrapError) Unwrap() error { return e.err }

// says reports whether one of the last lines contains one of the words.
func (e *bootstrapError) says(words ...string) bool {
	return slices.ContainsFunc(e.lines, func(line string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) })
	})
}

// summary is the line that tells a person most.
func (e *bootstrapError) summary() string {
	for _, line := range e.lines {
		if text, ok := strings.CutPrefix(line, "E: "); ok {
			return text
		}
	}
	return "it ended with: " + plainLine(e.err.Error())
}

// run bootstraps Debian and hands the tar stream to unpack, which must read it
// to its end. When ctx ends, or unpack gives up, or this process dies, no
// process of the bootstrap stays behind.
func (j bootstrapJob) run(ctx context.Context, unpack func(io.Reader) error, say func(string)) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	argv := withoutInheritance(append([]string{j.program}, j.args()...))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = j.env()
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if j.asRoot && hasCapability(unix.CAP_SYS_ADMIN) {
		// As PID 1 of a namespace of its own it takes everything it started
		// with it, and its mounts are seen by nobody else and go with it.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	// The death signal is tied to the thread that starts the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", j.program, err)
	}
	stopKiller := killGroupAfter(ctx, cmd.Process.Pid, j.grace)
	tail := make(chan []string, 1)
	go func() { tail <- follow(stderr, say) }()
	unpackErr := unpack(stdout)
	if unpackErr != nil {
		cancel()
	}
	_, _ = io.Copy(io.Discard, stdout) // nothing may block on a pipe nobody reads
	lines := <-tail
	awaitExit(cmd.Process.Pid)
	stopKiller()
	waitErr := cmd.Wait()
	if outer.Err() != nil {
		return outer.Err()
	}
	switch {
	case errors.Is(unpackErr, io.ErrUnexpectedEOF), errors.Is(unpackErr, tar.ErrHeader), errors.Is(unpackErr, errHostile):
		// The stream is to blame; the tool may have said why.
		return &bootstrapError{err: errors.Join(unpackErr, waitErr), lines: lines}
	case unpackErr != nil:
		return unpackErr
	case waitErr != nil:
		return &bootstrapError{err: waitErr, lines: lines}
	}
	return nil
}

// closeInherited is a perl program that runs its arguments with nothing open
// but the three standard streams.
const closeInherited = `use POSIX (); opendir(my $d, "/proc/self/fd") or die "E: list open files: $!\n";
POSIX::close($_) for grep { /^[0-9]+$/ && $_ > 2 } readdir $d;
exec { $ARGV[0] } @ARGV or die "E: start $ARGV[0]: $!\n";`

// withoutInheritance returns a command that runs argv without the files that
// this process may have got from whoever started it, or from a library that
// forgot to mark them. Besides keeping them from the scripts of packages, this
// makes mmdebstrap work at all: it hands descriptors to a shell that knows
// numbers of one digit only. mmdebstrap is written in perl, so that is there.
func withoutInheritance(argv []string) []string {
	perl, err := findTool("perl")
	if err != nil {
		return argv
	}
	return append([]string{perl, "-e", closeInherited, "--"}, argv...)
}

// killGroupAfter ends a process group when ctx does: politely, and after grace
// by force. stop ends the watch and returns when it has ended; until
// then the leader must not have been reaped, or its number may be another's.
func killGroupAfter(ctx context.Context, leader int, grace time.Duration) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-quit:
			return
		case <-ctx.Done():
		}
		_ = syscall.Kill(-leader, syscall.SIGTERM)
		force := time.NewTimer(grace)
		defer force.Stop()
		select {
		case <-quit:
		case <-force.C:
			_ = syscall.Kill(-leader, syscall.SIGKILL)
		}
	}()
	return func() { close(quit); <-ended }
}

// awaitExit waits until a child has exited, without reaping it.
func awaitExit(pid int) {
	_ = retryEINTR(func() error {
		return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	})
}

func (j bootstrapJob) args() []string {
	mode := "unshare"
	if j.asRoot {
		mode = "root"
	}
	args := []string{"--mode=" + mode, "--variant=minbase", "--format=tar"}
	if len(j.packages) > 0 {
		args = append(args, "--include="+strings.Join(j.packages, ","))
	}
	for _, option := range slimming {
		args = append(args, "--dpkgopt="+option)
	}
	if j.apt.skipValidUntil {
		args = append(args, `--aptopt=Acquire::Check-Valid-Until "false"`)
	}
	if j.apt.skipDate {
		args = append(args, `--aptopt=Acquire::Check-Date "false"`)
	}
	args = append(args, j.suite, "-")
	return append(args, j.sources...)
}

// env is a clean environment: nothing of the server's own reaches the scripts
// of packages but the way to the network.
func (j bootstrapJob) env() []string {
	env := []string{"PATH=" + toolPath, "HOME=/nonexistent", "LC_ALL=C.UTF-8", "TMPDIR=" + j.scratch}
	if !j.date.IsZero() {
		env = append(env, "SOURCE_DATE_EPOCH="+strconv.FormatInt(j.date.Unix(), 10))
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		value := os.Getenv(name)
		switch {
		case name == "http_proxy" && j.apt.proxy != "":
			value = j.apt.proxy
		case name == "https_proxy" && j.apt.secureProxy != "":
			value = j.apt.secureProxy
		}
		if value != "" && value != "DIRECT" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// follow reports what mmdebstrap says and returns its last lines.
func follow(stderr io.Reader, say func(string)) []string {
	var tail []string
	r := bufio.NewReaderSize(stderr, 4096)
	for {
		raw, more, err := r.ReadLine()
		if err != nil {
			return tail
		}
		line := plainLine(string(raw))
		for more && err == nil { // the rest of a very long line
			_, more, err = r.ReadLine()
		}
		if line == "" {
			continue
		}
		if tail = append(tail, line); len(tail) > keptErrorLines {
			tail = tail[1:]
		}
		if text, ok := strings.CutPrefix(line, "I: "); ok && worthSaying(text) {
			say("  " + text)
		}
	}
}

// worthSaying leaves out the lines that only matter to who debugs mmdebstrap.
func worthSaying(line string) bool {
	for _, prefix := range []string{"chroot architecture", "using ", "removing tempdir", "finding correct", "done", "success", "main() received"} {
		if strings.HasPrefix(line, prefix) {
			return false
		}
	}
	return true
}

// plainLine makes a line fit to be shown on a terminal.
func plainLine(line string) string {
	line = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.TrimSpace(line))
	if runes := []rune(line); len(runes) > maxProgressLine {
		return string(runes[:maxProgressLine]) + "…"
	}
	return line
}
