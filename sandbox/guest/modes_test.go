package guest_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// Who attaches after the ring has dropped the beginning of the output learns
// what that beginning made of the terminal.
func TestModes(t *testing.T) {
	c := connect(t)
	ctx := testContext(t)
	out := new(lockedBuffer)
	ready := make(chan struct{})
	p, err := c.Start(ctx, guest.Command{
		ID:     "editor",
		Script: `stty raw -echo; printf '\033[?1049h\033[?2004h\033[?25l\033]0;a title\a'; printf ready; read go; head -c 400000 /dev/zero | tr '\0' x; printf '\033[?25hdone'; read go`,
		TTY:    &guest.TTY{Size: guest.Size{Rows: 10, Cols: 20}},
	}, guest.Output{Stdout: writerFunc(func(b []byte) (int, error) {
		n, err := out.Write(b)
		if strings.HasSuffix(out.String(), "ready") {
			close(ready)
		}
		return n, err
	})})
	if err != nil {
		t.Fatal(err)
	}
	if p.Modes() != "" || p.Size() != (guest.Size{Rows: 10, Cols: 20}) {
		t.Errorf("at the start: %q %v", p.Modes(), p.Size())
	}
	<-ready
	early := p.Offset()
	p.Close()

	const set = "\x1b]2;a title\x07\x1b[?1049h\x1b[?25l\x1b[?2004h"
	p, err = c.Attach(ctx, "editor", early, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Modes() != set {
		t.Errorf("where the output is held: %q", p.Modes())
	}
	if err := p.Resize(ctx, guest.Size{Rows: 33}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p, "go\n"); err != nil {
		t.Fatal(err)
	}
	p.Close()

	var all *lockedBuffer
	for { // until the last of it is there
		all = new(lockedBuffer)
		end := make(chan struct{})
		p, err = c.Attach(ctx, "editor", -1, guest.Output{Stdout: writerFunc(func(b []byte) (int, error) {
			n, err := all.Write(b)
			if strings.HasSuffix(all.String(), "done") {
				close(end)
			}
			return n, err
		})})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-end:
		case <-ctx.Done():
			t.Fatal("the output does not end")
		}
		if p.Offset() > int64(len(all.String())) {
			break // the beginning is gone
		}
		p.Close()
	}
	if p.Modes() != set {
		t.Errorf("where the beginning is gone: %q", p.Modes())
	}
	if p.Size() != (guest.Size{Rows: 33, Cols: 20}) {
		t.Errorf("the size is %v", p.Size())
	}
	infos, err := c.List(ctx)
	if err != nil || len(infos) != 1 || infos[0].Size != p.Size() {
		t.Errorf("%+v %v", infos, err)
	}
	p.Close()
	p, err = c.Attach(ctx, "editor", 1<<50, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if want := "\x1b]2;a title\x07\x1b[?1049h\x1b[?2004h"; p.Modes() != want {
		t.Errorf("at the end: %q", p.Modes())
	}
}

// A sequence that the ring has cut in two is completed.
func TestModesInTheMiddle(t *testing.T) {
	c := connect(t)
	ctx := testContext(t)
	p, err := c.Start(ctx, guest.Command{ID: "x", Script: `stty raw -echo; printf 'text\033[?25l'; read go`, TTY: &guest.TTY{}}, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	for p.Offset() < 10 {
		if ctx.Err() != nil {
			t.Fatal("no output")
		}
		c.Ping(ctx)
	}
	p.Close()
	for from, want := range map[int64]string{4: "", 5: "\x1b", 7: "\x1b[?", 9: "\x1b[?25", 10: "\x1b[?25l"} {
		p, err := c.Attach(ctx, "x", from, guest.Output{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Modes() != want {
			t.Errorf("from %d on: %q, want %q", from, p.Modes(), want)
		}
		p.Close()
	}
}

// What a guest says of a terminal never reaches one as it is.
func TestHostileModes(t *testing.T) {
	answer := func(modes string) []byte {
		return message(`{"result":{"pid":7,"tty":true,"modes":"` + modes + `","rows":65535,"cols":1}}`)
	}
	c := hostile(t, answer(`\u001b]52;c;aGFjaw==\u0007\u001b[2J\u001b[?1049hrm -rf\r\n\u001b[?25l\u001b[6n\u001bP+q\u001b\\`))
	p, err := c.Attach(testContext(t), "x", -1, guest.Output{})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if p.Modes() != "\x1b[?1049h\x1b[?25l" {
		t.Errorf("%q", p.Modes())
	}
	c = hostile(t, answer(string(bytes.Repeat([]byte("x"), wire.MaxModes+1))))
	if _, err := c.Attach(testContext(t), "x", -1, guest.Output{}); err == nil || !strings.Contains(err.Error(), "broke the protocol") {
		t.Errorf("too long: %v", err)
	}
}
