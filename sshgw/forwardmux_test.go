package sshgw

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// P22: forwards come and go on a connection that is shared, and its end ends
// them.
func TestP22ForwardsOfMaster(t *testing.T) {
	g := newGateway(t)
	dest := sumServer(t)
	sock, far, near := filepath.Join(g.dir, "mux"), filepath.Join(t.TempDir(), "far"), filepath.Join(g.dir, "near")
	master := g.ssh("-M", "-N", "-o", "ControlPath="+sock, "box@gw")
	if err := master.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = master.Process.Kill(); _ = master.Wait() }()
	mux := func(args ...string) result {
		return run(t, g.ssh(append([]string{"-o", "ControlPath=" + sock, "-o", "ControlMaster=no"}, args...)...), nil)
	}
	eventually(t, "the master", func() bool { return mux("-O", "check", "box@gw").status == 0 })
	talk := func(path string) error {
		c, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		if got := halfClose(t, c, "abc"); got != "3\nabc" {
			return fmt.Errorf("got %q", got)
		}
		return nil
	}
	for round := range 3 {
		for _, spec := range [][]string{{"-R", far + ":" + dest}, {"-L", near + ":" + dest}} {
			mux("-O", "forward", spec[0], spec[1], "box@gw").expect(t, 0, "")
		}
		for _, path := range []string{far, near} {
			if err := talk(path); err != nil {
				t.Errorf("round %d, %s: %v", round, path, err)
			}
		}
		mux("-O", "cancel", "-R", far+":"+dest, "box@gw").expect(t, 0, "")
		mux("-O", "cancel", "-L", near+":"+dest, "box@gw").expect(t, 0, "")
		eventually(t, "the end of the forward", func() bool { _, err := os.Lstat(far); return err != nil })
		_ = os.Remove(near) // the client leaves its own socket
	}
	mux("-n", "box@gw", "exit 3").expect(t, 3, "")
	mux("-O", "exit", "box@gw").expect(t, 0, "")
}
