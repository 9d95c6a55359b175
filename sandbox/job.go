package sandbox

import (
	"context"
	"io"
	"time"
)

// JobStatus is where a job is in its life.
type JobStatus string

// The job statuses.
const (
	JobPending   JobStatus = "pending"
	JobRunning   JobStatus = "running"
	JobCompleted JobStatus = "completed" // exit 0
	JobFailed    JobStatus = "failed"    // any other exit, or it could not start
	JobCancelled JobStatus = "cancelled"
)

// Done reports whether the job has ended.
func (s JobStatus) Done() bool { return s != JobPending && s != JobRunning }

// Job is the record of one background command. Jobs of a sandbox run side by
// side, survive the server, and a pause with memory.
type Job struct {
	ID              string // job_…
	SandboxID       string
	Status          JobStatus
	Command         []string
	ExitCode        *int
	Error           string
	StdoutBytes     int64 // kept
	StderrBytes     int64 // kept
	OutputTruncated bool
	CreatedAt       time.Time
	StartedAt       time.Time
	EndedAt         time.Time
}

// JobRequest says what to run in the background.
type JobRequest struct {
	Command []string
	Env     map[string]string
	Dir     string
	User    string
}

// JobStore keeps jobs. It works as Store does.
type JobStore interface {
	CreateJob(ctx context.Context, j Job, events ...Event) error
	UpdateJob(ctx context.Context, id string, change func(*Job) ([]Event, error)) (Job, error)
	Job(ctx context.Context, id string) (Job, error)
	// Jobs returns those of one sandbox, newest first; limit 0 is all.
	Jobs(ctx context.Context, sandboxID string, limit, offset int) ([]Job, int, error)
	// OpenJobs returns every job that has not ended; of one sandbox when
	// sandboxID is not empty.
	OpenJobs(ctx context.Context, sandboxID string) ([]Job, error)
}

// JobOperations are what an Actor can do with jobs.
type JobOperations interface {
	// CreateJob starts a job and returns when it runs. Exhausted when as many
	// run as may.
	CreateJob(ctx context.Context, ref string, r JobRequest) (Job, error)
	// Job returns one, after it has ended if wait is positive and that comes
	// within wait.
	Job(ctx context.Context, id string, wait time.Duration) (Job, error)
	// Jobs returns a page of those of one sandbox, newest first, and how many
	// there are. limit is 1 to 100; 0 is 50.
	Jobs(ctx context.Context, ref string, limit, offset int) ([]Job, int, error)
	// StopJob sends SIGTERM to all of a job, and SIGKILL after a grace period,
	// with force at once. It returns when the job has ended; stopping one that
	// has ended does nothing. A stop that is under way is hurried by another
	// one with force.
	StopJob(ctx context.Context, id string, force bool) (Job, error)
	// JobOutput copies a stream of a job to w, from its beginning, and goes on
	// until the job has ended when follow is set.
	JobOutput(ctx context.Context, id string, s Stream, o OutputOptions, w io.Writer) error
}

// OutputOptions say how output is read.
type OutputOptions struct {
	Follow     bool // go on until the command has ended
	Timestamps bool // each line begins with the time of its first byte, RFC 3339 with nanoseconds, and a space
	Tail       int  // only the last lines of what there is; 0 is all
}
