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

// drivePublished runs a script of testdata/published against a new server and
// decodes what it printed.
func drivePublished(t *testing.T, script string, got any) (raw []byte) {
	t.Helper()
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
	cmd := exec.CommandContext(ctx, node, filepath.Join("testdata", "published", script), folder, srv.URL, "sgk_alice")
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if raw, err = cmd.Output(); err != nil {
		t.Fatalf("node: %v\n%s%s", err, raw, stderr.String())
	}
	if err := json.Unmarshal(raw, got); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return raw
}

// The client that Agentuity publishes works against this server, unchanged,
// and its own schemas accept every answer.
func TestPublishedClient(t *testing.T) {
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
	raw := drivePublished(t, "client.mjs", &got)
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

// The same for what can be done with a sandbox that lives.
func TestPublishedClientLife(t *testing.T) {
	type file struct {
		Path, Mode string
		Size       int64
		IsDir      bool
	}
	type found struct{ Found bool }
	type job struct{ JobID, Status string }
	type snapshot struct {
		SnapshotID, Name string
		Tag              *string
		FileCount        int
		Public           bool
	}
	type snapshots struct {
		Snapshots []snapshot
		Lineage   []snapshot
		Total     int
	}
	var got struct {
		Written                                       int
		Read, NoFile, Copied, JobOutput               string
		Listed                                        []file
		Removed, RemovedAgain, RemovedDir             found
		Env                                           map[string]string
		JobDone, JobStopped                           job
		Jobs                                          struct{ Jobs []job }
		Paused                                        struct{ SandboxID, Status, TerminatesAt string }
		PausedInfo                                    struct{ Status string }
		Woken                                         struct{ AutoResumed bool }
		Snapshot, SnapshotGet, Retagged, Untagged     snapshot
		PublicGet                                     snapshot
		Snapshots, Lineage, LineageByName, PublicList snapshots
		NotPublic, InUse, Gone, Restored              string
		From                                          struct {
			Info struct {
				Snapshot struct {
					ID     string
					Public bool
				}
			}
			Read string
		}
		Listed2  struct{ Total int }
		Resolved struct{ ID, Status string }
		CLIList  struct {
			Sandboxes []struct{ ID string }
			Total     int
		}
		Checkpoint  struct{ ID, Name string }
		Checkpoints []struct{ ID, Name string }
		Events      struct{ Events []struct{ Type string } }
	}
	raw := drivePublished(t, "life.mjs", &got)
	types := ""
	for _, e := range got.Events.Events {
		types += e.Type + " "
	}
	for what, ok := range map[string]bool{
		"write and read": got.Written == 2 && got.Read == "hello\n",
		"list files":     len(got.Listed) == 2 && got.Listed[0] == file{Path: "a.txt", Mode: "0644", Size: 6},
		"remove":         got.Removed.Found && !got.RemovedAgain.Found && got.RemovedDir.Found,
		"missing file":   got.NoFile != "no error",
		"archive":        got.Copied == "hello\n",
		"resolve":        got.Resolved.Status == "idle" && got.CLIList.Total == 1 && got.CLIList.Sandboxes[0].ID == got.Resolved.ID,
		"env":            len(got.Env) == 1 && got.Env["B"] == "2",
		"job":            got.JobDone.Status == "completed" && got.JobOutput == "from a job\n" && got.JobStopped.Status == "cancelled" && len(got.Jobs.Jobs) == 2,
		"pause":          got.Paused.SandboxID != "" && got.Paused.Status == "paused" && got.Paused.TerminatesAt != "" && got.PausedInfo.Status == "paused" && got.Woken.AutoResumed,
		"snapshot":       got.Snapshot.Name == "app" && *got.Snapshot.Tag == "v1" && got.SnapshotGet.SnapshotID == got.Snapshot.SnapshotID && got.Snapshots.Total == 1,
		"tag":            *got.Retagged.Tag == "v2" && got.Untagged.Tag == nil,
		"lineage":        got.Lineage.Total == 1 && got.LineageByName.Lineage[0].SnapshotID == got.Snapshot.SnapshotID,
		"public":         got.NotPublic == "404" && got.PublicGet.Public && got.PublicList.Total == 1,
		"from snapshot":  got.From.Read == "hello\n" && got.From.Info.Snapshot.ID == got.Snapshot.SnapshotID && got.Listed2.Total == 1,
		"delete":         got.InUse == "409" && got.Gone == "404",
		"checkpoint":     got.Restored == "hello\n" && got.Checkpoint.Name == "before" && len(got.Checkpoints) == 1 && got.Checkpoints[0].ID == got.Checkpoint.ID,
		"events":         strings.Contains(types, "pause resume pause resume") && strings.Contains(types, "checkpoint:restore"),
	} {
		if !ok {
			t.Errorf("%s went wrong: %s", what, raw)
		}
	}
}
