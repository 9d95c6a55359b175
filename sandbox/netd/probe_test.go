package netd

import "testing"

func TestProbe(t *testing.T) {
	ok, why := Probe(t.Context())
	t.Log(ok, why)
}
