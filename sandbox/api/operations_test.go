package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// operation is one thing the client can do with a sandbox and what was made in
// it.
type operation struct {
	name string
	do   func(ctx context.Context, c *api.Client, x *things) error
}

// things are what the owner has made.
type things struct {
	sandbox, execution, job, snapshot, checkpoint, other string
	archive                                              []byte
}

func failed[T any](_ T, err error) error { return err }

// operations is everything that reaches a sandbox, in an order in which each
// works for its owner.
func operations() []operation {
	limits := api.UpdateRequest{Timeout: &api.Timeouts{Idle: "1h"}}
	return []operation{
		{"get", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Get(ctx, x.sandbox, api.GetOptions{Usage: true}))
		}},
		{"status", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Status(ctx, x.sandbox, nil, 0))
		}},
		{"set env", func(ctx context.Context, c *api.Client, x *things) error {
			one := "1"
			return failed(c.SetEnv(ctx, x.sandbox, map[string]*string{"A": &one, "B": nil}))
		}},
		{"update", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Update(ctx, x.sandbox, limits))
		}},
		{"usage", func(ctx context.Context, c *api.Client, x *things) error { return failed(c.Usage(ctx, x.sandbox)) }},
		{"events", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Events(ctx, x.sandbox, 5, true))
		}},
		{"follow events", func(ctx context.Context, c *api.Client, x *things) error {
			if err := c.FollowEvents(ctx, x.sandbox, 0, func(api.Event) error { return errEnough }); !errors.Is(err, errEnough) {
				return err
			}
			return nil
		}},
		{"write files", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.WriteFiles(ctx, x.sandbox, api.FilesRequest{Files: []api.File{{Path: "d/a", Content: "YQ=="}, {Path: "d/b", Content: "Yg=="}}}))
		}},
		{"put file", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.PutFile(ctx, x.sandbox, "d/c", api.PutOptions{Mode: "0600"}, strings.NewReader("c")))
		}},
		{"read file", func(ctx context.Context, c *api.Client, x *things) error {
			var b bytes.Buffer
			if err := c.ReadFile(ctx, x.sandbox, "d/c", &b); err != nil || b.String() != "c" {
				return errors.Join(err, errors.New("it holds "+b.String()))
			}
			return nil
		}},
		{"list files", func(ctx context.Context, c *api.Client, x *things) error {
			l, err := c.ListFiles(ctx, x.sandbox, "d", api.ListFilesOptions{Limit: 2})
			if err == nil && (len(l.Files) != 2 || !l.More) {
				err = errors.New("the wrong files")
			}
			return err
		}},
		{"stat", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.StatFile(ctx, x.sandbox, "d/c"))
		}},
		{"rename", func(ctx context.Context, c *api.Client, x *things) error {
			return c.Rename(ctx, x.sandbox, "d/c", "d/e")
		}},
		{"chmod", func(ctx context.Context, c *api.Client, x *things) error {
			return c.Chmod(ctx, x.sandbox, "d/e", "0755")
		}},
		{"mkdir", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Mkdir(ctx, x.sandbox, "m/n", true))
		}},
		{"rm", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.RemoveFile(ctx, x.sandbox, "d/e"))
		}},
		{"rmdir", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.RemoveDir(ctx, x.sandbox, "m", true))
		}},
		{"download", func(ctx context.Context, c *api.Client, x *things) error {
			var b bytes.Buffer
			err := c.Download(ctx, x.sandbox, "d", "zip", &b)
			if err == nil {
				x.archive = b.Bytes()
			}
			return err
		}},
		{"upload", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Upload(ctx, x.sandbox, "u", "", bytes.NewReader(x.archive)))
		}},
		{"create job", func(ctx context.Context, c *api.Client, x *things) error {
			j, err := c.CreateJob(ctx, x.sandbox, api.JobRequest{Command: []string{"sh", "-c", "echo out; exec sleep 600"}})
			if err == nil {
				x.job = j.JobID
			}
			return err
		}},
		{"jobs", func(ctx context.Context, c *api.Client, x *things) error { return failed(c.Jobs(ctx, x.sandbox, 1, 0)) }},
		{"job", func(ctx context.Context, c *api.Client, x *things) error { return failed(c.Job(ctx, x.sandbox, x.job)) }},
		{"job output", func(ctx context.Context, c *api.Client, x *things) error {
			return c.ReadStreamWith(ctx, "/v1/streams/"+x.job+"/stdout", api.StreamOptions{NoFollow: true, Timestamps: true, Tail: 1}, io.Discard)
		}},
		{"stop job", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.StopJob(ctx, x.sandbox, x.job, true))
		}},
		{"wait for job", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.WaitJob(ctx, x.sandbox, x.job))
		}},
		{"create snapshot", func(ctx context.Context, c *api.Client, x *things) error {
			p, err := c.CreateSnapshot(ctx, x.sandbox, api.SnapshotRequest{Tag: "v1", Metadata: map[string]json.RawMessage{"n": json.RawMessage("1")}}, "")
			if err == nil {
				x.snapshot = p.SnapshotID
			}
			return err
		}},
		{"snapshot", func(ctx context.Context, c *api.Client, x *things) error { return failed(c.Snapshot(ctx, x.snapshot)) }},
		{"snapshot files", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.SnapshotFiles(ctx, x.snapshot, 0, 0))
		}},
		{"lineage", func(ctx context.Context, c *api.Client, x *things) error { return failed(c.Lineage(ctx, x.snapshot)) }},
		{"tag snapshot", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.TagSnapshot(ctx, x.snapshot, ""))
		}},
		{"create checkpoint", func(ctx context.Context, c *api.Client, x *things) error {
			p, err := c.CreateCheckpoint(ctx, x.sandbox, "one/two") // the slash is no part of the path
			if err == nil {
				x.checkpoint = p.ID
			}
			return err
		}},
		{"checkpoints", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Checkpoints(ctx, x.sandbox))
		}},
		{"diff", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Diff(ctx, x.sandbox+"@"+x.checkpoint, x.sandbox, 0, 0))
		}},
		{"diff of a snapshot", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Diff(ctx, x.snapshot, x.snapshot, 1, 0))
		}},
		{"diff file", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.DiffFile(ctx, x.snapshot, x.sandbox, "d/a"))
		}},
		{"restore", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.RestoreCheckpoint(ctx, x.sandbox, x.checkpoint))
		}},
		{"delete checkpoint", func(ctx context.Context, c *api.Client, x *things) error {
			return c.DeleteCheckpoint(ctx, x.sandbox, x.checkpoint)
		}},
		{"fork", func(ctx context.Context, c *api.Client, x *things) error {
			s, err := c.Fork(ctx, x.sandbox, api.ForkRequest{Resources: &api.Resources{Memory: "64Mi"}, Timeout: &api.Timeouts{Idle: "2h"}})
			if err == nil {
				x.other = s.SandboxID
			}
			return err
		}},
		{"delete snapshot", func(ctx context.Context, c *api.Client, x *things) error {
			return c.DeleteSnapshot(ctx, x.snapshot, true)
		}},
		{"pause", func(ctx context.Context, c *api.Client, x *things) error { return failed(c.Pause(ctx, x.sandbox)) }},
		{"resume", func(ctx context.Context, c *api.Client, x *things) error { return failed(c.Resume(ctx, x.sandbox)) }},
		{"execute", func(ctx context.Context, c *api.Client, x *things) error {
			e, err := c.Execute(ctx, x.sandbox, api.ExecuteRequest{Command: []string{"true"}, Queue: true})
			if err == nil {
				x.execution = e.ExecutionID
			}
			return err
		}},
		{"output", func(ctx context.Context, c *api.Client, x *things) error {
			return c.ReadStream(ctx, "/v1/streams/"+x.execution+"/stdout?timestamps=true", io.Discard)
		}},
		{"wait for execution", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.WaitExecution(ctx, x.execution))
		}},
		{"executions", func(ctx context.Context, c *api.Client, x *things) error {
			return failed(c.Executions(ctx, x.sandbox, 1))
		}},
		{"delete", func(ctx context.Context, c *api.Client, x *things) error {
			if x.other != "" {
				return errors.Join(c.Delete(ctx, x.other), c.Delete(ctx, x.sandbox))
			}
			return c.Delete(ctx, x.sandbox)
		}},
	}
}

var errEnough = errors.New("enough")

// Every operation reaches the engine through every door: for the owner and for
// an admin it works; for a stranger there is nothing there, whatever exists.
func TestEveryOperation(t *testing.T) {
	h := newHandler(t, newEngine(t))
	owners := doors(t, h)
	owners["admin"] = inProcess(h, admin)
	alone := inProcess(h, alice)
	for name, c := range owners {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			x := &things{sandbox: create(t, alone, api.CreateRequest{}).SandboxID}
			for _, op := range operations() {
				for _, stranger := range strangers(t, h, name) {
					seen := *x
					fillIDs(&seen)
					err := op.do(ctx, stranger, &seen)
					if e := fault.From(err); e == nil || e.Code != fault.NotFound {
						t.Errorf("%s by a stranger: %v", op.name, err)
					}
				}
				if err := op.do(ctx, c, x); err != nil {
					t.Fatalf("%s: %v", op.name, err)
				}
			}
		})
	}
}

// fillIDs gives what was not made yet an id, so that a stranger asks for
// something.
func fillIDs(x *things) {
	for _, id := range []struct {
		to  *string
		def string
	}{
		{&x.execution, "exec_aaaaaaaaaaaa"}, {&x.job, "job_aaaaaaaaaaaa"}, {&x.snapshot, "snp_aaaaaaaaaaaa"}, {&x.checkpoint, "ckpt_aaaaaaaaaaaa"},
	} {
		if *id.to == "" {
			*id.to = id.def
		}
	}
	x.other = ""
}

// strangers are clients of somebody else, by the same door where it has them.
func strangers(t *testing.T, h http.Handler, door string) []*api.Client {
	t.Helper()
	switch door {
	case "one connection":
		return []*api.Client{overOneConn(t, h, bob)}
	case "admin":
		return nil
	}
	return []*api.Client{inProcess(h, bob)}
}
