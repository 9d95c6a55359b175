package api

import (
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// JobRequest is the body of POST /sandbox/sandboxes/{id}/jobs. Env, Dir and
// User are ours alone.
type JobRequest struct {
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	User    string            `json:"user,omitempty"`
	Streams *StreamConfig     `json:"streams,omitempty"`
}

// Job describes a background command. Its streams can be read at their URLs
// for a day without another key; see StreamOptions.
type Job struct {
	JobID           string    `json:"jobId"`
	SandboxID       string    `json:"sandboxId"`
	Status          string    `json:"status"`
	Command         []string  `json:"command"`
	ExitCode        *int      `json:"exitCode,omitempty"`
	CreatedAt       time.Time `json:"createdAt"`
	StartedAt       time.Time `json:"startedAt,omitzero"`
	CompletedAt     time.Time `json:"completedAt,omitzero"`
	Error           string    `json:"error,omitempty"`
	StdoutStreamURL string    `json:"stdoutStreamUrl,omitempty"`
	StderrStreamURL string    `json:"stderrStreamUrl,omitempty"`
	OutputTruncated bool      `json:"outputTruncated,omitempty"`
}

// Done reports whether the job has ended.
func (j Job) Done() bool { return sandbox.JobStatus(j.Status).Done() }

// JobList answers GET /sandbox/sandboxes/{id}/jobs; Total counts all of the
// sandbox.
type JobList struct {
	Jobs  []Job `json:"jobs"`
	Total int   `json:"total"`
}

func jobShape(j sandbox.Job) Job {
	out := Job{
		JobID: j.ID, SandboxID: j.SandboxID, Status: string(j.Status), Command: j.Command, ExitCode: j.ExitCode,
		CreatedAt: j.CreatedAt.UTC(), StartedAt: j.StartedAt.UTC(), CompletedAt: j.EndedAt.UTC(), Error: j.Error, OutputTruncated: j.OutputTruncated,
	}
	if out.Command == nil {
		out.Command = []string{}
	}
	return out
}
