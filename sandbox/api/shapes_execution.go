package api

import (
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// ExecuteRequest is the body of POST /sandbox/{id}/execute.
type ExecuteRequest struct {
	Command []string      `json:"command"`
	Files   []File        `json:"files,omitempty"`
	Timeout string        `json:"timeout,omitempty"` // "30s"; empty: the sandbox's
	Stream  *StreamConfig `json:"stream,omitempty"`
	// Queue lets the command wait while another one runs, instead of being
	// refused.
	Queue bool `json:"queue,omitempty"`
}

// Execution describes a foreground command. StdinStreamURL is set in the
// answer to the request that asked for it, and nowhere else.
type Execution struct {
	ExecutionID     string    `json:"executionId"`
	SandboxID       string    `json:"sandboxId"`
	Type            string    `json:"type"`
	Status          string    `json:"status"`
	Command         []string  `json:"command"`
	ExitCode        *int      `json:"exitCode,omitempty"`
	DurationMs      *int64    `json:"durationMs,omitempty"`
	CreatedAt       time.Time `json:"createdAt"`
	StartedAt       time.Time `json:"startedAt,omitzero"`
	CompletedAt     time.Time `json:"completedAt,omitzero"`
	Error           string    `json:"error,omitempty"`
	StdinStreamURL  string    `json:"stdinStreamUrl,omitempty"`
	StdoutStreamURL string    `json:"stdoutStreamUrl,omitempty"`
	StderrStreamURL string    `json:"stderrStreamUrl,omitempty"`
	OutputTruncated bool      `json:"outputTruncated,omitempty"`
	AutoResumed     bool      `json:"autoResumed,omitempty"` // the sandbox was resumed for it
}

// Done reports whether the execution has ended.
func (x Execution) Done() bool { return sandbox.ExecutionStatus(x.Status).Done() }

// ExecutionList answers GET /sandbox/sandboxes/{id}/executions.
type ExecutionList struct {
	Executions []Execution `json:"executions"`
}

// Event is one lifecycle fact.
type Event struct {
	EventID   string         `json:"eventId"`
	SandboxID string         `json:"sandboxId"`
	Seq       int64          `json:"seq"`
	Type      string         `json:"type"`
	Event     map[string]any `json:"event"`
	Principal string         `json:"principal,omitempty"`
	CreatedAt time.Time      `json:"createdAt"`
	Position  int64          `json:"position,omitempty"` // among the events of all sandboxes
	Missed    int            `json:"missed,omitempty"`   // when followed: how many were left out before it
}

// EventList answers GET /sandbox/sandboxes/{id}/events and GET /v1/events.
type EventList struct {
	Events []Event `json:"events"`
}

func executionShape(x sandbox.Execution) Execution {
	out := Execution{
		ExecutionID: x.ID, SandboxID: x.SandboxID, Type: "exec", Status: string(x.Status), Command: x.Command,
		ExitCode: x.ExitCode, CreatedAt: x.CreatedAt.UTC(), StartedAt: x.StartedAt.UTC(), CompletedAt: x.EndedAt.UTC(),
		Error: x.Error, OutputTruncated: x.OutputTruncated, AutoResumed: x.AutoResumed,
	}
	if out.Command == nil {
		out.Command = []string{}
	}
	if !x.StartedAt.IsZero() && !x.EndedAt.IsZero() {
		ms := x.EndedAt.Sub(x.StartedAt).Milliseconds()
		out.DurationMs = &ms
	}
	return out
}

func eventShape(e sandbox.Event) Event {
	data := e.Data
	if data == nil {
		data = map[string]any{}
	}
	return Event{
		EventID: e.ID, SandboxID: e.SandboxID, Seq: e.Seq, Type: string(e.Type), Event: data,
		Principal: e.Principal, CreatedAt: e.At.UTC(), Position: e.Position,
	}
}
