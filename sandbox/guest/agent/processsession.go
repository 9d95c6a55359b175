package agent

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// sessionRounds bounds how often a session is looked through for processes that
// were being made the last time.
const sessionRounds = 8

// signalSession sends a signal to the processes of a session that are not in a
// group that has got it already, and reports whether there were any. A shell
// with job control puts its children into groups of their own; those that made
// themselves a session of their own are out of reach. To a signal that cannot be
// caught it comes back until it finds nobody new.
func signalSession(session, group int, sig syscall.Signal) (found bool) {
	told := map[int]bool{}
	for range sessionRounds {
		again := false
		for _, m := range sessionMembers(session) {
			if told[m.pid] || (m.group == group && sig != syscall.SIGKILL) {
				continue
			}
			told[m.pid], again = true, true
			found = syscall.Kill(m.pid, sig) == nil || found
		}
		if !again || sig != syscall.SIGKILL {
			return found
		}
	}
	return found
}

type member struct{ pid, group int }

// sessionMembers looks for the living processes of a session.
func sessionMembers(session int) []member {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what could be read is all there is to go by
	var found []member
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		// The name of the program, in parentheses, may contain anything.
		_, rest, ok := strings.Cut(string(stat[max(strings.LastIndexByte(string(stat), ')'), 0):]), ") ")
		fields := strings.Fields(rest) // state, parent, group, session, …
		if !ok || len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		group, gerr := strconv.Atoi(fields[2])
		in, serr := strconv.Atoi(fields[3])
		if gerr == nil && serr == nil && in == session {
			found = append(found, member{pid, group})
		}
	}
	return found
}
