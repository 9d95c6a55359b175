package gvisor

import (
	"fmt"
	"os"
	"strings"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// autopsy says how a sandbox ended, from what it left.
func (d *Driver) autopsy(r *record, l life) driver.Exit {
	h := d.host()
	exit := driver.Exit{Reason: "ended by itself"}
	switch {
	case l.Ending && h.oomKills(d.cgroupOf(r.Spec.ID)) == 0:
		return driver.Exit{Reason: "stopped"}
	case l.BootID != bootID():
		exit.Reason = "the host was restarted"
	case h.oomKills(d.cgroupOf(r.Spec.ID)) > 0:
		exit.OOM = true
		exit.Reason = fmt.Sprintf("out of memory (limit %s)", size(r.Spec.Limits.MemoryBytes))
	case h.forksRefused(d.cgroupOf(r.Spec.ID)) > 0:
		exit.Reason = fmt.Sprintf("too many processes (limit %d)", r.Spec.Limits.Processes)
	case notEmpty(d.box(r.Spec.ID).panicLog()):
		exit.Reason = "its gVisor kernel failed"
	}
	if r.Storage == sentryFile {
		exit.Reason += "; files written since the last stop are lost, as sandgate runs without root"
	}
	return exit
}

func notEmpty(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Size() > 0
}

// size writes a number of bytes as people write limits: "512Mi".
func size(n int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	i := 0
	for n != 0 && n%1024 == 0 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return fmt.Sprintf("%d%s", n, units[i])
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
