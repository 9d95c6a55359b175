package drivertest

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden layer anew")

// TestGoldenLayer holds that the form of layers has not changed: what older
// versions have exported is still what this one exports.
func TestGoldenLayer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("owners and marks of overlayfs need root")
	}
	made, err := GoldenLayer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/layer.tar", made, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(made, golden) {
		t.Errorf("the same files give %d other bytes than the %d of testdata/layer.tar", len(made), len(golden))
	}
}
