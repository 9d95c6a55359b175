package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// The guest lives beside a user's work in that user's memory limit.
	gcPercent   = 50
	memoryLimit = 64 << 20
	// childUmask is what every process starts with.
	childUmask = 0o022
)

// runInit is PID 1. It needs no /proc and no writable filesystem besides the
// directory of the socket.
func runInit(socket string) error {
	if os.Getpid() != 1 {
		return errors.New("this is for PID 1 of a sandbox; it ends every process it can see when it ends")
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	// Nothing that the driver happened to leave open reaches the children.
	// A kernel without the call leaves that to the driver.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	unix.Umask(childUmask)
	if err := os.Chdir("/"); err != nil {
		return err
	}

	// All signals, so that none has its default effect here, and none is
	// ignored in the children: a signal that is caught is reset by exec.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	signal.Reset(syscall.SIGURG) // the runtime sends it to itself all the time

	a := New(Config{Version: version(), Env: sandboxEnv(os.Environ()), Program: ownProgram(), Runtime: RuntimePath, Reap: true})
	if err := a.makeWorkspace(); err != nil {
		fmt.Fprintf(os.Stderr, "sandgate guest: make %s: %v\n", a.cfg.Workspace, err)
	}
	if err := a.makeRuntime(); err != nil {
		fmt.Fprintf(os.Stderr, "sandgate guest: make %s: %v\n", a.cfg.Runtime, err)
	}
	s, err := openSocket(socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	var parts sync.WaitGroup
	parts.Go(func() { a.reaper.run(stop) })
	parts.Go(func() { a.serveSocket(ctx, s) })
	parts.Go(func() {
		for {
			select {
			case sig := <-signals:
				if sig == syscall.SIGTERM {
					a.Shutdown()
				}
			case <-stop:
				return
			}
		}
	})
	<-a.Done()
	close(stop)
	cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		parts.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(a.cfg.ShutdownGrace): // something hangs in the kernel
	}
	return nil
}

// sandboxEnv is the environment of PID 1 without what belongs to PID 1: the
// settings of its own runtime and what a login sets for each user.
func sandboxEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "GOGC", "GOMEMLIMIT", "GODEBUG", "GOMAXPROCS", "GOTRACEBACK", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "TERM":
			return true
		}
		return strings.HasPrefix(name, "SANDGATE_GUEST_")
	})
}
