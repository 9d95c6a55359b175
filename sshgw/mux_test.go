package sshgw

import (
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// P22: the sessions of one ControlMaster do not know each other.
func TestP22ControlMaster(t *testing.T) {
	g := newGateway(t)
	sock := filepath.Join(g.dir, "mux")
	master := g.ssh("-M", "-N", "-o", "ControlPath="+sock, "box@gw")
	if err := master.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = master.Process.Kill(); _ = master.Wait() }()
	mux := func(args ...string) result {
		return run(t, g.ssh(append([]string{"-o", "ControlPath=" + sock, "-o", "ControlMaster=no"}, args...)...), nil)
	}
	eventually(t, "the master", func() bool { return mux("-O", "check", "box@gw").status == 0 })
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			opt := "-n"
			if i%3 == 0 {
				opt = "-tt"
			}
			r := mux(opt, "box@gw", "printf "+strconv.Itoa(i)+"; exit "+strconv.Itoa(i))
			if r.status != i || r.stdout != strconv.Itoa(i) {
				t.Errorf("command %d: status %d, stdout %q, stderr %q", i, r.status, r.stdout, r.stderr)
			}
		})
	}
	wg.Wait()
	// Closing one leaves the others.
	long := g.ssh("-T", "-o", "ControlPath="+sock, "-o", "ControlMaster=no", "box@gw", "echo up; cat; exit 9")
	in, err := long.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, errs := new(syncBuffer), new(syncBuffer)
	long.Stdout, long.Stderr = out, errs
	if err := long.Start(); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "up\n")
	mux("-n", "box@gw", "exit 1").expect(t, 1, "")
	_ = in.Close()
	finish(t, long, out, errs).expect(t, 9, "up\n")
	mux("-O", "exit", "box@gw").expect(t, 0, "")
}
