package gvisor

import (
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/driver"
)

func TestLife(t *testing.T) {
	r := newRig(t)
	t0 := time.Now()
	r.boot(t, "one")
	t.Logf("create and start: %v", time.Since(t0))
	r.want(t, "one", "echo hi; id -u; hostname; cat /proc/1/comm; ls -a /tmp", "hi\n0\none\nguest\n.\n..\n.keep")
	r.sh(t, "one", "echo kept > /f; mkdir /etc/d; echo x >/etc/d/x; rm /bin/vi")
	t0 = time.Now()
	r.stop(t, "one", time.Minute)
	t.Logf("stop: %v", time.Since(t0))
	s, err := r.Inspect(t.Context(), "one")
	if err != nil || s.State != driver.Stopped || s.Exit.Reason != "stopped" {
		t.Fatalf("%+v, %v", s, err)
	}
	must(t, r.Start(t.Context(), "one"))
	r.want(t, "one", "cat /f /etc/d/x; ls /bin/vi", "kept\nx\nls: /bin/vi: No such file or directory")
	t0 = time.Now()
	must(t, r.Remove(t.Context(), "one"))
	t.Logf("remove: %v", time.Since(t0))
}
