package gvisor

import (
	"context"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/sandgate/sandgate/sandbox/driver"
)

// Annotations in the OCI spec by which the sentry learns its size. runsc would
// tell it from the cgroups it makes; those are made here instead, as runsc
// moves itself in and out of them, and on cgroups version 1 that is a third of
// the time of a start.
const (
	memoryAnnotation = "dev.sandgate.memory"
	cpusAnnotation   = "dev.sandgate.cpus"
)

func sizeAnnotations(l driver.Limits) map[string]string {
	a := make(map[string]string)
	if l.MemoryBytes > 0 {
		a[memoryAnnotation] = strconv.FormatInt(l.MemoryBytes, 10)
	}
	if l.CPUMillis > 0 {
		// Below two, programs turn off locking that they need here.
		n := max(2, (l.CPUMillis+999)/1000)
		a[cpusAnnotation] = strconv.FormatInt(min(n, int64(runtime.NumCPU())), 10)
	}
	return a
}

// bootCommand is runsc's command that becomes the sentry. It shows the memory and CPU
// limits inside, in /proc/meminfo and as the number of CPUs.
type bootCommand struct{ sentrycmd.Boot }

// Execute implements subcommands.Command.
func (b *bootCommand) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	// As a plain user the sentry executes itself once more, in an empty root
	// directory and with the flags set here.
	if bundle := f.Lookup("bundle"); bundle != nil && readJSON(filepath.Join(bundle.Value.String(), "config.json"), &spec) == nil {
		for annotation, name := range map[string]string{memoryAnnotation: "total-memory", cpusAnnotation: "cpu-num"} {
			v, ok := spec.Annotations[annotation]
			if !ok {
				continue
			}
			if err := f.Set(name, v); err != nil {
				util.Fatalf("set %s to %q: %v", name, v, err)
			}
		}
	}
	return b.Boot.Execute(ctx, f, args...)
}
