package wire

import (
	"strconv"
	"strings"
)

// signalNames are the signals of Linux, without "SIG", by number.
var signalNames = [...]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE",
	9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM",
	16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU",
	23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO",
	30: "PWR", 31: "SYS",
}

const maxSignal = 64

// SignalName returns the name of a signal; those without one are "RT" and
// their number.
func SignalName(n int) string {
	if n > 0 && n < len(signalNames) {
		return signalNames[n]
	}
	return "RT" + strconv.Itoa(n)
}

// SignalNumber returns the number of a signal named with or without "SIG", in
// any case, and 0 when there is no such signal.
func SignalNumber(name string) int {
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	for n, known := range signalNames {
		if known == name && n > 0 {
			return n
		}
	}
	if digits, ok := strings.CutPrefix(name, "RT"); ok {
		if n, err := strconv.Atoi(digits); err == nil && n >= len(signalNames) && n <= maxSignal && SignalName(n) == name {
			return n
		}
	}
	return 0
}
