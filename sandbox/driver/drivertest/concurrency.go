package drivertest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func concurrencyTests() []test {
	return []test{
		{name: "Concurrency/EightLives", run: testEightLives},
		{name: "Concurrency/OneSandbox", run: testOneSandbox},
	}
}

// testEightLives takes eight sandboxes through their lives at once.
func testEightLives(t *testing.T, e *env) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := oneLife(t, e, fmt.Sprint(i)); err != nil {
				t.Errorf("sandbox %d: %s", i, causes(err))
			}
		})
	}
	wg.Wait()
}

func oneLife(t *testing.T, e *env, mark string) error {
	c := ctx(t)
	s := e.spec()
	s.Labels = map[string]string{"mark": mark}
	defer e.remove(t, s.ID)
	if err := e.d.Create(c, s); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for range 2 {
		if err := e.d.Start(c, s.ID); err != nil {
			return fmt.Errorf("start: %w", err)
		}
		stream, err := e.d.Dial(c, s.ID)
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		if err := say(c, stream, mark); err != nil {
			return err
		}
		if err := e.d.Stop(c, s.ID, 0); err != nil {
			return fmt.Errorf("stop: %w", err)
		}
	}
	status, err := e.d.Inspect(c, s.ID)
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if status.State != driver.Stopped || status.Labels["mark"] != mark {
		return fmt.Errorf("status is %+v", status)
	}
	return nil
}

// say runs echo over a new connection on the stream and wants it back.
func say(c context.Context, stream io.ReadWriteCloser, mark string) error {
	conn, err := guest.Connect(c, stream)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	var out strings.Builder
	p, err := conn.Start(c, guest.Command{ID: newID(), NoStdin: true, Args: []string{"echo", mark}}, guest.Output{Stdout: &out})
	if err != nil {
		return fmt.Errorf("run echo: %w", err)
	}
	exit, err := p.Wait(c)
	if err != nil {
		return fmt.Errorf("wait for echo: %w", err)
	}
	if exit.Status() != 0 || out.String() != mark+"\n" {
		return fmt.Errorf("echo gave %q, %+v", out.String(), exit)
	}
	return nil
}

// testOneSandbox calls everything at once on one sandbox: every answer is one
// of the contract, and the end is clean.
func testOneSandbox(t *testing.T, e *env) {
	s := e.spec()
	c := ctx(t)
	ops := []func() error{
		func() error { return e.d.Create(c, s) },
		func() error { return e.d.Start(c, s.ID) },
		func() error { return e.d.Stop(c, s.ID, 0) },
		func() error { return e.d.Stop(c, s.ID, time.Second) },
		func() error { return e.d.Remove(c, s.ID) },
		func() error { _, err := e.d.Inspect(c, s.ID); return err },
		func() error { _, err := e.d.List(c); return err },
		func() error { _, err := e.d.Wait(c, s.ID); return err },
		func() error {
			stream, err := e.d.Dial(c, s.ID)
			if err == nil {
				stream.Close()
			}
			return err
		},
	}
	// Wait returns only when the sandbox does not run: somebody has to see to
	// that until all others are done.
	var wg, waits sync.WaitGroup
	for i, op := range ops {
		group := &wg
		if i == 7 {
			group = &waits
		}
		group.Go(func() {
			for range 3 {
				if err := op(); err != nil {
					wantCode(t, err, fault.NotFound, fault.State, fault.Exists, fault.Busy)
				}
			}
		})
	}
	wg.Wait()
	e.remove(t, s.ID)
	finishes(t, "Wait", waits.Wait)
}
