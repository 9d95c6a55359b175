package api_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// publishedEnv names the folder of an unpacked @agentuity/core 2.0.21
// (npm pack @agentuity/core@2.0.21 && tar xf …).
const publishedEnv = "SANDGATE_PUBLISHED_CLIENT"

// The client that Agentuity publishes works against this server, unchanged,
// and its own schemas accept every answer.
func TestPublishedClient(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("the published client needs node: %v", err)
	}
	folder := os.Getenv(publishedEnv)
	if folder == "" {
		t.Skipf("set %s to the folder of an unpacked @agentuity/core 2.0.21", publishedEnv)
	}
	srv := httptest.NewServer(newHandler(t, newEngine(t)))
	defer srv.Close()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, filepath.Join("testdata", "published", "client.mjs"), folder, srv.URL, "sgk_alice")
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s%s", err, raw, stderr.String())
	}
	var got struct {
		Created struct{ ID, Status string }
		Info    struct {
			SandboxID, Name, Status, Description string
			Resources, Timeout                   map[string]string
			Metadata                             map[string]any
		}
		Connected string
		Execution struct {
			Status   string
			ExitCode int
		}
		Piped   []string
		Fetched string
		List    struct {
			Sandboxes []struct{ SandboxID string }
			Total     int
		}
		Runtimes struct{ Total int }
		Run      struct {
			ExitCode       int
			Stdout, Stderr string
		}
		Executions struct{ Executions []struct{ Status string } }
		Events     struct{ Events []struct{ Type string } }
		Busy       struct{ Tag string }
		After      struct{ Status int }
		Missing    struct{ Status int }
		BadMemory  struct {
			Status  int
			Message string
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	for what, ok := range map[string]bool{
		"create":      strings.HasPrefix(got.Created.ID, "sbx_") && got.Created.Status == "idle",
		"get":         got.Info.SandboxID == got.Created.ID && got.Info.Name == "published" && got.Info.Resources["memory"] == "256Mi" && got.Info.Timeout["idle"] == "10m" && got.Info.Metadata["n"] == 1.0,
		"connect":     got.Connected == got.Created.ID,
		"execute":     got.Execution.Status == "failed" && got.Execution.ExitCode == 3,
		"pipe":        len(got.Piped) == 2 && got.Piped[0] == "hello\nfrom a file\nmore\n" && got.Piped[1] == "oops\n",
		"stream URL":  got.Fetched == "hello\nfrom a file\nmore\n",
		"list":        got.List.Total == 1 && len(got.List.Sandboxes) == 1 && got.List.Sandboxes[0].SandboxID == got.Created.ID,
		"runtimes":    got.Runtimes.Total == 2,
		"run":         got.Run.ExitCode == 5 && got.Run.Stdout == "one-shot\n" && got.Run.Stderr == "err\n",
		"executions":  len(got.Executions.Executions) == 1 && got.Executions.Executions[0].Status == "failed",
		"events":      len(got.Events.Events) == 4 && got.Events.Events[0].Type == "execution:ended",
		"busy":        got.Busy.Tag == "SandboxBusyError",
		"after":       got.After.Status == 404,
		"missing":     got.Missing.Status == 404,
		"bad request": got.BadMemory.Status == 400 && strings.HasPrefix(got.BadMemory.Message, "resources.memory: "),
	} {
		if !ok {
			t.Errorf("%s went wrong: %s", what, raw)
			break
		}
	}
}
