package drivertest

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/guest"
)

func execTests() []test {
	return []test{
		{name: "Exec/Exits", run: testExecExits},
		{name: "Exec/Streams", run: testExecStreams},
		{name: "Exec/Environment", run: testExecEnvironment},
		{name: "Exec/BigData", run: testExecBigData},
		{name: "Exec/Parallel", run: testExecParallel},
		{name: "Exec/GuestEnvironment", walls: true, run: testGuestEnvironment},
		{name: "Exec/User", walls: true, run: testExecUser},
		{name: "Exec/Terminal", run: testExecTerminal},
	}
}

func testExecExits(t *testing.T, e *env) {
	b := e.boot(t)
	for _, tt := range []struct {
		script string
		want   guest.Exit
	}{
		{"exit 0", guest.Exit{}},
		{"exit 7", guest.Exit{Code: 7}},
		{"exit 255", guest.Exit{Code: 255}},
		{"no-such-program", guest.Exit{Code: 127}},
		{"kill -TERM $$", guest.Exit{Signal: "TERM"}},
		{"kill -KILL $$", guest.Exit{Signal: "KILL"}},
	} {
		if got := b.try(t, tt.script).exit; got.Code != tt.want.Code || got.Signal != tt.want.Signal {
			t.Errorf("%q ended with %+v, want %+v", tt.script, got, tt.want)
		}
	}
	if r := b.run(t, guest.Command{Script: "echo $((40+2))"}, ""); r.stdout != "42\n" || r.exit.Code != 0 {
		t.Errorf("a script of the login shell: %+v", r)
	}
}

func testExecStreams(t *testing.T, e *env) {
	b := e.boot(t)
	r := b.try(t, "echo out; echo err >&2; exit 3")
	if r.stdout != "out\n" || r.stderr != "err\n" || r.exit.Code != 3 {
		t.Errorf("%+v", r)
	}
	r = b.run(t, guest.Command{Args: []string{"cat"}}, "to and fro\x00\xff\r\n")
	if r.stdout != "to and fro\x00\xff\r\n" {
		t.Errorf("cat gave %q", r.stdout)
	}
	if r := b.try(t, "cat; echo end"); r.stdout != "end\n" {
		t.Errorf("an empty input gave %q", r.stdout)
	}
}

func testExecEnvironment(t *testing.T, e *env) {
	b := e.boot(t)
	dir := b.sh(t, "mkdir -p sub && cd sub && pwd")
	r := b.run(t, guest.Command{
		Args: []string{"/bin/sh", "-c", `echo "$COLOUR"; pwd`},
		Env:  []string{"COLOUR=green", "COLOUR=sea blue"},
		Dir:  "sub",
	}, "")
	if want := "sea blue\n" + dir + "\n"; r.stdout != want {
		t.Errorf("got %q, want %q", r.stdout, want)
	}
	if got := b.sh(t, "echo $"+secretName); got != "" && e.h.NoWalls == "" {
		t.Errorf("the environment of the server reaches processes: %q", got)
	}
}

func testGuestEnvironment(t *testing.T, e *env) {
	b := e.boot(t, func(s *driver.Spec) { s.Guest.Env = []string{"DRIVERTEST=a b=c"} })
	if env := b.sh(t, `tr '\0' '\n' </proc/1/environ`); !strings.Contains("\n"+env+"\n", "\nDRIVERTEST=a b=c\n") {
		t.Errorf("the environment of PID 1 is %q", env)
	}
	if args := b.sh(t, `tr '\0' ' ' </proc/1/cmdline`); args != driver.GuestPath+" init" {
		t.Errorf("PID 1 is %q", args)
	}
}

func testExecUser(t *testing.T, e *env) {
	b := e.boot(t)
	if got := b.sh(t, "id -u; id -g"); got != "0\n0" {
		t.Errorf("the default user is %q", got)
	}
	r := b.run(t, guest.Command{
		Args: []string{"/bin/sh", "-c", "id -u; id -g; cd; pwd; touch mine && ls -ln mine; cat /etc/shadow /root/secret"},
		User: "user",
	}, "")
	lines := strings.Split(r.stdout, "\n")
	if len(lines) < 4 || lines[0] != "1000" || lines[1] != "1000" || lines[2] != "/home/user" {
		t.Errorf("a user got %q %q", r.stdout, r.stderr)
	}
	if r.exit.Code == 0 {
		t.Error("a user reads the files of root")
	}
}

func testExecTerminal(t *testing.T, e *env) {
	b := e.boot(t)
	out := newScreen()
	p, err := b.conn.Start(ctx(t), guest.Command{
		ID:   newID(),
		Args: []string{"/bin/sh", "-c", "stty size; echo ready; read x; stty size; exit 5"},
		TTY:  &guest.TTY{Term: "xterm", Size: guest.Size{Rows: 33, Cols: 111}},
	}, guest.Output{Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	out.wait(t, "33 111\r\nready\r\n")
	if err := p.Resize(ctx(t), guest.Size{Rows: 44, Cols: 122}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("\r")); err != nil {
		t.Fatal(err)
	}
	out.wait(t, "44 122\r\n")
	if exit, err := p.Wait(ctx(t)); err != nil || exit.Code != 5 {
		t.Errorf("%+v, %v", exit, err)
	}
}

// bigData is what testExecBigData sends each way.
const bigData = 32 << 20

// testExecBigData sends random bytes through a process and wants them back
// unharmed, reading and writing at the same time.
func testExecBigData(t *testing.T, e *env) {
	b := e.boot(t)
	c := ctx(t)
	back := &digest{Hash: sha256.New()}
	p, err := b.conn.Start(c, guest.Command{ID: newID(), Args: []string{"cat"}}, guest.Output{Stdout: back})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	sent := sha256.New()
	src := io.LimitReader(rand.NewChaCha8([32]byte{1}), bigData)
	if _, err := io.Copy(io.MultiWriter(p, sent), src); err != nil {
		t.Fatal(err)
	}
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(c); err != nil || exit.Status() != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if got, want := back.Sum(nil), sent.Sum(nil); string(got) != string(want) {
		t.Errorf("%d of %d bytes came back, with another checksum", back.n, bigData)
	}
}

// digest is a hash that counts.
type digest struct {
	hash.Hash
	n int64
}

func (d *digest) Write(b []byte) (int, error) {
	d.n += int64(len(b))
	return d.Hash.Write(b)
}

func testExecParallel(t *testing.T, e *env) {
	b := e.boot(t)
	const n = 40
	var wg sync.WaitGroup
	limit := make(chan struct{}, 10)
	for i := range n {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			var out strings.Builder
			p, err := b.conn.Start(ctx(t), guest.Command{
				ID: newID(), NoStdin: true,
				Args: []string{"/bin/sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i)},
			}, guest.Output{Stdout: &out})
			if err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			exit, err := p.Wait(ctx(t))
			if err != nil || exit.Code != i || out.String() != fmt.Sprintln(i) {
				t.Errorf("%d: %+v, %v, %q", i, exit, err, out.String())
			}
		})
	}
	wg.Wait()
}
