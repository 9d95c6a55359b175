package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/asciicast"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (a *app) recordingPlayCommand() *cobra.Command {
	speed, idle, from := 1.0, "0s", "0s"
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use: "play <recording> [flags]", Short: "Show a recording as it happened",
		Long: `Show a recording as it happened. Only what is there to be seen reaches your
terminal: a recorded program cannot set its title, use your clipboard, or make it
answer. Make the window as large as the recorded one.

On a terminal: space stops and goes on, left and right go 5s back and ahead, up
and down make it faster and slower, q ends it.

With --follow it shows a session that goes on as it happens.`,
		Example: `  sandgate recording play rec_4k2m7qa3bc5d
  sandgate recording play rec_4k2m7qa3bc5d --speed 4 --idle-limit 1s --from 2m
  ssh -t gateway recording play rec_4k2m7qa3bc5d --follow`,
		Args: exactly(argRecording),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := playback{speed: speed, follow: follow}
			var err error
			switch {
			case speed < 0.01 || speed > 1000:
				return usagef("--speed: must be 0.01 to 1000")
			case follow && cmd.Flags().Changed("speed"):
				return usagef("--follow shows what happens as it happens; leave out --speed")
			}
			if p.idle, err = sandbox.ParseDuration(idle); err != nil {
				return flagError("idle-limit", err)
			}
			if p.from, err = sandbox.ParseDuration(from); err != nil {
				return flagError("from", err)
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				if asJSON {
					return c.ReadRecording(ctx, args[0], "", follow, a.Stdout)
				}
				p.open = func(ctx context.Context) io.ReadCloser {
					r, w := io.Pipe()
					go func() { _ = w.CloseWithError(c.ReadRecording(ctx, args[0], "", follow, w)) }()
					return r
				}
				return a.play(ctx, &p)
			})
		},
	}
	fl := cmd.Flags()
	fl.Float64Var(&speed, "speed", 1, "how many times as fast")
	fl.StringVar(&idle, "idle-limit", "0s", "shorten pauses to this (default: as they were)")
	fl.StringVar(&from, "from", "0s", "begin at this time of the recording")
	fl.BoolVarP(&follow, "follow", "f", false, "show one that is being made, as it happens")
	fl.BoolVar(&asJSON, "json", false, "print what is recorded, one JSON value a line (asciicast), instead of showing it")
	return cmd
}

// play shows a recording on standard output, with keys where that is a
// terminal.
func (a *app) play(ctx context.Context, p *playback) error {
	p.screen = asciicast.NewScreen(a.Stdout)
	if a.StdoutTTY && a.StdinTTY && a.Raw != nil {
		restore, err := a.Raw()
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, "the terminal cannot be read key by key: %v", err)
		}
		defer restore()
		p.keys = readKeys(a.Stdin)
	}
	err := p.run(ctx)
	if a.StdoutTTY {
		err = errors.Join(err, p.screen.Close())
		fmt.Fprint(a.Stdout, "\r\n")
	}
	for _, m := range p.marks {
		fmt.Fprintf(a.Stderr, "sandgate: at %s: %s\r\n", sandbox.FormatDuration(m.At.Truncate(time.Second)), clean(m.Data))
	}
	switch {
	case errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe):
		return exitCodeError{code: exitPipe}
	case errors.Is(err, asciicast.ErrFormat):
		return fault.Wrap(err, fault.Unavailable, "what the server sent is not a recording")
	}
	return err
}

// playback is a recording that is being shown.
type playback struct {
	open   func(ctx context.Context) io.ReadCloser // from its beginning
	screen *asciicast.Screen
	keys   <-chan key // nil: nobody presses any
	follow bool
	speed  float64
	idle   time.Duration // pauses are no longer; 0: as they were
	from   time.Duration // what comes before is shown at once

	paused bool
	pos    time.Duration // in the recording
	due    time.Time     // when what is at pos was, or would have been, shown
	marks  []asciicast.Event
}

// seekStep is how far one key press goes.
const seekStep = 5 * time.Second

// maxMarks bounds the remarks that are shown at the end.
const maxMarks = 20

// errBack is for going back: the recording is opened again.
var errBack = errors.New("go back")

// errQuit is for whoever has seen enough.
var errQuit = errors.New("quit")

// run shows the recording until it ends, or somebody ends it.
func (p *playback) run(ctx context.Context) error {
	for {
		err := p.once(ctx)
		switch {
		case errors.Is(err, errQuit):
			return nil
		case !errors.Is(err, errBack):
			return err
		}
		if err := p.screen.Clear(); err != nil {
			return err
		}
	}
}

// once shows the recording from its beginning: at once up to from, and as it
// happened from there.
func (p *playback) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := p.open(ctx)
	defer stream.Close()
	events, failed := readEvents(ctx, stream)
	p.pos, p.due, p.marks = 0, time.Now(), nil
	for {
		var e asciicast.Event
		var ok bool
		select {
		case e, ok = <-events:
		case k := <-p.keys:
			if err := p.press(k); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		if !ok {
			return <-failed
		}
		if err := p.wait(ctx, e.At); err != nil {
			return err
		}
		switch e.Code {
		case asciicast.Output:
			if err := p.screen.Show(e.Data); err != nil {
				return err
			}
		case asciicast.Marker:
			if e.Data != "" && len(p.marks) < maxMarks {
				p.marks = append(p.marks, e)
			}
		}
	}
}

// wait returns when what was at a time of the recording is to be shown.
func (p *playback) wait(ctx context.Context, at time.Duration) error {
	for {
		if at <= p.from || p.follow {
			p.pos, p.due = at, time.Now()
			return ctx.Err()
		}
		gap := at - p.pos
		if p.idle > 0 {
			gap = min(gap, p.idle)
		}
		due := p.due.Add(time.Duration(float64(gap) / p.speed))
		var now <-chan time.Time
		if !p.paused {
			left := time.Until(due)
			if left <= 0 {
				p.pos, p.due = at, due
				return ctx.Err()
			}
			timer := time.NewTimer(left)
			defer timer.Stop()
			now = timer.C
		}
		select {
		case <-now:
		case k := <-p.keys:
			// Where we are, as far as there is something between two events.
			if !p.paused {
				p.pos += min(time.Duration(float64(time.Since(p.due))*p.speed), at-p.pos)
			}
			p.due = time.Now()
			if err := p.press(k); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// press does what a key says.
func (p *playback) press(k key) error {
	switch k {
	case keyQuit:
		return errQuit
	case keyPause:
		p.paused = !p.paused
	case keyAhead:
		p.from = p.pos + seekStep
	case keyBack:
		p.from = max(p.pos-seekStep, 0)
		return errBack
	case keyFaster:
		p.speed = min(p.speed*2, 1000)
	case keySlower:
		p.speed = max(p.speed/2, 0.01)
	}
	return nil
}

// readEvents reads a recording in the background, so that keys are heard while
// there is nothing to show. failed says why there are no more events; nil is
// the end.
func readEvents(ctx context.Context, stream io.Reader) (<-chan asciicast.Event, <-chan error) {
	events, failed := make(chan asciicast.Event, 64), make(chan error, 1)
	go func() {
		defer close(events)
		r, err := asciicast.NewReader(stream)
		for err == nil {
			var e asciicast.Event
			if e, err = r.Next(); err != nil {
				break
			}
			select {
			case events <- e:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		failed <- err
	}()
	return events, failed
}
