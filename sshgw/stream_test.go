package sshgw

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// noise returns n bytes that do not compress and are the same in each run.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func bulk() int {
	if testing.Short() {
		return 5 << 20
	}
	return 50 << 20
}

// P12: what goes through a pipe comes out as it was, both ways.
func TestP12BinaryClean(t *testing.T) {
	g := newGateway(t)
	data := noise(bulk())
	sum := sha256.Sum256(data)
	run(t, g.ssh("box@gw", "sha256sum"), bytes.NewReader(data)).expect(t, 0, hex.EncodeToString(sum[:])+"  -\n")
	r := run(t, g.ssh("box@gw", "cat"), bytes.NewReader(data))
	if r.status != 0 || r.stderr != "" || !bytes.Equal([]byte(r.stdout), data) {
		t.Errorf("cat: status %d, %d bytes of %d, stderr %q", r.status, len(r.stdout), len(data), r.stderr)
	}
	r = run(t, g.ssh("gw", "cat"), bytes.NewReader(data))
	if r.status != 0 || !bytes.Equal([]byte(r.stdout), data) {
		t.Errorf("cat in the command tree: status %d, %d bytes of %d", r.status, len(r.stdout), len(data))
	}
	run(t, g.ssh("-n", "box@gw", "true"), nil).expect(t, 0, "")
}

// P12: standard output and standard error stay apart.
func TestP12StreamsApart(t *testing.T) {
	g := newGateway(t)
	r := run(t, g.ssh("-n", "box@gw", "i=0; while [ $i -lt 300 ]; do head -c 10000 /dev/zero | tr '\\0' o; head -c 10000 /dev/zero | tr '\\0' e >&2; i=$((i+1)); done"), nil)
	if r.status != 0 || r.stdout != strings.Repeat("o", 3e6) || r.stderr != strings.Repeat("e", 3e6) {
		t.Errorf("status %d, stdout %d bytes, stderr %d bytes, want 3000000 of each", r.status, len(r.stdout), len(r.stderr))
	}
}

// P13: a reader that stops holds back its own channel and nothing else, and
// the gateway's memory does not grow.
func TestP13StoppedReader(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	stuck, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := stuck.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stuck.Start("yes"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 20 {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Output("echo ok"); err != nil || string(got) != "ok\n" {
			t.Fatalf("second channel: %q, %v", got, err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// P26: keys are exchanged anew under load.
func TestP26Rekey(t *testing.T) {
	g := newGateway(t)
	data := noise(bulk())
	r := run(t, g.ssh("-o", "RekeyLimit=1M", "box@gw", "cat"), bytes.NewReader(data))
	if r.status != 0 || !bytes.Equal([]byte(r.stdout), data) {
		t.Errorf("status %d, %d bytes of %d, stderr %q", r.status, len(r.stdout), len(data), r.stderr)
	}
}

// P16: what may be set is, and nothing else.
func TestP16Environment(t *testing.T) {
	g := newGateway(t)
	r := run(t, g.ssh("-n", "-o", "SetEnv=LC_X=eins LANG=zwei LD_PRELOAD=/x BASH_ENV=/x FOO=bar PATH=/x COLORTERM=truecolor", "box@gw", "env"), nil)
	for want, there := range map[string]bool{
		"LC_X=eins": true, "LANG=zwei": true, "COLORTERM=truecolor": true,
		"LD_PRELOAD=": false, "BASH_ENV=": false, "FOO=": false, "PATH=/x": false,
	} {
		if strings.Contains("\n"+r.stdout, "\n"+want) != there {
			t.Errorf("%s is there: %v, want %v", want, !there, there)
		}
	}
	run(t, g.ssh("-n", "-o", "SetEnv=TZ=UTC", "gw", "env"), nil).expect(t, 0, "TZ=UTC\n")

	c := g.dial("box", "alice")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for i := range 1000 {
		if s.Setenv(fmt.Sprintf("LC_N%d", i), "x") == nil {
			taken++
		}
	}
	if taken != maxEnvCount {
		t.Errorf("%d variables were taken, want %d", taken, maxEnvCount)
	}
	out, err := s.Output("env | grep -c ^LC_N")
	if err != nil || string(out) != fmt.Sprintln(maxEnvCount) {
		t.Errorf("the command saw %q, %v", out, err)
	}
}
