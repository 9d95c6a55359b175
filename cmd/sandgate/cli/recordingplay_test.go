package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/asciicast"
)

// player plays a recording of events to a buffer.
type player struct {
	playback
	mu   sync.Mutex
	out  bytes.Buffer
	more chan struct{}
	done chan error
}

func (p *player) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.more)
	p.more = make(chan struct{})
	return p.out.Write(b)
}

func newPlayer(write func(w *asciicast.Writer)) *player {
	var file bytes.Buffer
	w := asciicast.NewWriter(&file, asciicast.Header{Width: 80, Height: 24})
	write(w)
	_ = w.End()
	p := &player{more: make(chan struct{}), done: make(chan error, 1)}
	p.speed = 1
	p.screen = asciicast.NewScreen(p)
	p.open = func(context.Context) io.ReadCloser { return io.NopCloser(bytes.NewReader(file.Bytes())) }
	return p
}

func (p *player) start(t *testing.T) chan<- key {
	keys := make(chan key)
	p.keys = keys
	go func() { p.done <- p.run(t.Context()) }()
	return keys
}

// shows waits until so many of something were shown.
func (p *player) shows(t *testing.T, what string, times int) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		p.mu.Lock()
		n, shown, more := strings.Count(p.out.String(), what), p.out.String(), p.more
		p.mu.Unlock()
		if n >= times {
			return
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("%q was not shown %d times: %q", what, times, shown)
		}
	}
}

func (p *player) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

func TestPlayShowsAll(t *testing.T) {
	p := newPlayer(func(w *asciicast.Writer) {
		w.Output(0, []byte("one \x1b]0;title\x07\x1b[c"))
		w.Input(time.Second, []byte("typed"))
		w.Mark(2*time.Second, "a remark")
		w.Output(100*time.Second, []byte("\x1b[31mtwo"))
	})
	p.speed = 1000
	p.start(t)
	p.ends(t)
	if got := p.out.String(); got != "one \x1b[31mtwo" {
		t.Errorf("shown: %q", got)
	}
	if len(p.marks) != 1 || p.marks[0].Data != "a remark" {
		t.Errorf("remarks %+v", p.marks)
	}
}

func TestPlayTakesItsTime(t *testing.T) {
	p := newPlayer(func(w *asciicast.Writer) {
		w.Output(0, []byte("a"))
		w.Output(200*time.Millisecond, []byte("b"))
		w.Output(100*time.Hour, []byte("c"))
	})
	p.idle = 200 * time.Millisecond
	began := time.Now()
	p.start(t)
	p.ends(t)
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("it took %s", took)
	}
	p = newPlayer(func(w *asciicast.Writer) {
		w.Output(time.Hour, []byte("a"))
		w.Output(2*time.Hour, []byte("b"))
	})
	p.from = 3 * time.Hour
	p.start(t)
	p.ends(t)
	if p.out.String() != "ab" {
		t.Errorf("shown: %q", &p.out)
	}
}

func TestPlayKeys(t *testing.T) {
	p := newPlayer(func(w *asciicast.Writer) {
		w.Output(0, []byte("first "))
		w.Output(4*time.Second, []byte("second "))
		for i := range 20 {
			w.Output(time.Hour+time.Duration(i)*time.Second, []byte(fmt.Sprintf("later%d ", i)))
		}
	})
	keys := p.start(t)
	p.shows(t, "first", 1)
	keys <- keyPause
	keys <- keyAhead // to 5s, while it stands still
	p.shows(t, "second", 1)
	keys <- keyFaster
	keys <- keySlower
	keys <- keyBack
	p.shows(t, "first", 2) // from the beginning, on a screen that is empty
	p.shows(t, "\x1b[2J", 1)
	keys <- keyQuit
	p.ends(t)
	if strings.Contains(p.out.String(), "later") {
		t.Errorf("shown too early: %q", &p.out)
	}
}

func TestPlayEnds(t *testing.T) {
	for name, c := range map[string]struct {
		stream io.Reader
		want   error
	}{
		"no recording": {strings.NewReader("hello\n"), asciicast.ErrFormat},
		"nothing":      {strings.NewReader(""), nil},
		"a lost one":   {io.MultiReader(strings.NewReader(`{"version":2,"width":80,"height":24}`+"\n"), failing{}), io.ErrUnexpectedEOF},
	} {
		p := newPlayer(func(*asciicast.Writer) {})
		p.open = func(context.Context) io.ReadCloser { return io.NopCloser(c.stream) }
		if err := p.run(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	p := newPlayer(func(w *asciicast.Writer) { w.Output(time.Hour, []byte("x")) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestKeysOfTerminals(t *testing.T) {
	for in, want := range map[string]string{
		"q": "[1]", "\x03": "[1]", " ": "[2]", "\x1b[D": "[3]", "\x1bOC": "[4]", "\x1b[A\x1b[B": "[5 6]", "x\x1b[Cy q": "[4 2 1]", "": "[]", "\x1b": "[]",
	} {
		if got := fmt.Sprint(keysIn([]byte(in))); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
