package gvisor

import (
	"debug/elf"
	"fmt"
)

// checkStatic returns an error when the program at path is not linked
// statically. gVisor executes it anew in a root directory that is empty, where
// no dynamic linker is found.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("this program is linked dynamically, and gVisor needs a static one: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
