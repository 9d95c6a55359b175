package api

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// CreateRequest is the body of POST /sandbox. Quantities are written as people
// write them: sizes "512Mi", CPU "500m", durations "10m".
type CreateRequest struct {
	ProjectID    string                     `json:"projectId,omitempty"`
	Runtime      string                     `json:"runtime,omitempty"`
	RuntimeID    string                     `json:"runtimeId,omitempty"`
	Name         string                     `json:"name,omitempty"`
	Description  string                     `json:"description,omitempty"`
	Resources    *Resources                 `json:"resources,omitempty"`
	Env          map[string]string          `json:"env,omitempty"`
	Network      *Network                   `json:"network,omitempty"`
	Stream       *StreamConfig              `json:"stream,omitempty"`
	Timeout      *Timeouts                  `json:"timeout,omitempty"`
	Command      *Command                   `json:"command,omitempty"`
	Files        []File                     `json:"files,omitempty"`
	Snapshot     string                     `json:"snapshot,omitempty"`
	Dependencies []string                   `json:"dependencies,omitempty"`
	Packages     []string                   `json:"packages,omitempty"`
	Metadata     map[string]json.RawMessage `json:"metadata,omitempty"`
	Scopes       []string                   `json:"scopes,omitempty"`
}

// Resources are the limits of a sandbox; an empty one is the server's default.
type Resources struct {
	Memory string `json:"memory,omitempty"`
	CPU    string `json:"cpu,omitempty"`
	Disk   string `json:"disk,omitempty"`
}

// Network asks for outbound network and an exposed port. Allow, which the
// published API does not have, bounds what can be reached; without it that is
// every public address.
type Network struct {
	Enabled bool     `json:"enabled,omitempty"`
	Port    int      `json:"port,omitempty"`
	Allow   []string `json:"allow,omitzero"`
}

// Timeouts are the clocks of a sandbox. "0s" is none, but for Execution, where
// it is the server's default.
type Timeouts struct {
	Idle      string `json:"idle,omitempty"`
	Execution string `json:"execution,omitempty"`
	Paused    string `json:"paused,omitempty"`
}

// Command is what a sandbox is created for. Mode "oneshot" destroys the
// sandbox when the command has ended; "interactive", the default, keeps it.
type Command struct {
	Exec  []string `json:"exec"`
	Mode  string   `json:"mode,omitempty"`
	Files []File   `json:"files,omitempty"`
	// Attended, with oneshot, cancels the command when nobody has waited for
	// it, followed its output or fed its input for a while.
	Attended bool `json:"attended,omitempty"`
}

// File is a file to write: Content is base64, Mode is octal ("0755") and 0644
// when it is empty.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Mode    string `json:"mode,omitempty"`
}

// The values of StreamConfig.
const (
	StreamIgnore = "ignore" // leave the stream out
	StreamPipe   = "pipe"   // for stdin: keep it open and feed it at StdinStreamURL
)

// StreamConfig says what becomes of a command's streams.
type StreamConfig struct {
	Stdin      string `json:"stdin,omitempty"`
	Stdout     string `json:"stdout,omitempty"`
	Stderr     string `json:"stderr,omitempty"`
	Timestamps bool   `json:"timestamps,omitempty"`
}

// Created answers POST /sandbox. The stream URLs are those of the command, if
// there is one; each can be read for a day without another key.
type Created struct {
	SandboxID       string `json:"sandboxId"`
	Name            string `json:"name,omitempty"`
	Status          string `json:"status"`
	ExecutionID     string `json:"executionId,omitempty"`
	StdinStreamURL  string `json:"stdinStreamUrl,omitempty"`
	StdoutStreamURL string `json:"stdoutStreamUrl,omitempty"`
	StderrStreamURL string `json:"stderrStreamUrl,omitempty"`
}

// Sandbox describes a sandbox.
type Sandbox struct {
	SandboxID       string                     `json:"sandboxId"`
	Identifier      string                     `json:"identifier"`
	Name            string                     `json:"name,omitempty"`
	Description     string                     `json:"description,omitempty"`
	Status          string                     `json:"status"`
	StatusReason    string                     `json:"statusReason,omitempty"`
	Mode            string                     `json:"mode"`
	CreatedAt       time.Time                  `json:"createdAt"`
	UpdatedAt       time.Time                  `json:"updatedAt"`
	EndedAt         time.Time                  `json:"endedAt,omitzero"`
	Engine          string                     `json:"engine,omitempty"`
	Runtime         *RuntimeRef                `json:"runtime,omitempty"`
	Executions      int                        `json:"executions"`
	ExitCode        *int                       `json:"exitCode,omitempty"`
	StdoutStreamURL string                     `json:"stdoutStreamUrl,omitempty"`
	StderrStreamURL string                     `json:"stderrStreamUrl,omitempty"`
	Metadata        map[string]json.RawMessage `json:"metadata,omitempty"`
	Resources       *Resources                 `json:"resources,omitempty"`
	NetworkEnabled  bool                       `json:"networkEnabled"`
	Network         *Network                   `json:"network,omitempty"`
	User            *Named                     `json:"user,omitempty"`
	Project         *Named                     `json:"project,omitempty"`
	Org             Named                      `json:"org"`
	Timeout         *Timeouts                  `json:"timeout,omitempty"`
	Command         *Command                   `json:"command,omitempty"`
	NetworkPort     int                        `json:"networkPort,omitempty"`
	Snapshot        *SnapshotRef               `json:"snapshot,omitempty"`
	Parent          string                     `json:"parent,omitempty"`      // the sandbox it was forked from
	PausedAt        time.Time                  `json:"pausedAt,omitzero"`     // while it is paused
	MemoryKept      bool                       `json:"memoryKept,omitempty"`  // it is paused with its processes
	TerminatesAt    time.Time                  `json:"terminatesAt,omitzero"` // if nothing happens to it until then
	TerminatesWhy   string                     `json:"terminatesWhy,omitempty"`
	Usage           *Usage                     `json:"usage,omitempty"`     // when it was asked for
	CPUTimeMs       *int64                     `json:"cpuTimeMs,omitempty"` // as in Usage
	MemoryByteSec   *float64                   `json:"memoryByteSec,omitempty"`
	NetworkEgress   *int64                     `json:"networkEgressBytes,omitempty"`
}

// RuntimeRef is the runtime a sandbox was made from.
type RuntimeRef struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	IconURL    string   `json:"iconUrl,omitempty"`
	BrandColor string   `json:"brandColor,omitempty"`
	Tags       []string `json:"tags,omitempty"`
	Source     string   `json:"source,omitempty"`
}

// Named is a reference to a project, an organization or a principal.
type Named struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// SandboxList answers GET /sandbox; Total counts all that match.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes"`
	Total     int       `json:"total"`
}

// SandboxStatus answers GET /sandbox/status/{id}.
type SandboxStatus struct {
	SandboxID string `json:"sandboxId"`
	Status    string `json:"status"`
	ExitCode  *int   `json:"exitCode,omitempty"`
}

func sandboxShape(s sandbox.Sandbox) Sandbox {
	out := Sandbox{
		SandboxID: s.ID, Identifier: strings.TrimPrefix(s.ID, "sbx_"), Name: s.Name, Description: s.Description,
		Status: string(s.Status), StatusReason: s.StatusReason, Mode: string(s.Mode),
		CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(), EndedAt: s.EndedAt.UTC(),
		Engine: s.Driver, Executions: s.Executions, Metadata: s.Metadata, Org: Named{s.Org, s.Org},
	}
	out.NetworkPort, out.Parent, out.MemoryKept = s.Port, s.Parent, s.Memory
	out.PausedAt, out.TerminatesAt = s.PausedAt.UTC(), s.TerminatesAt.UTC()
	if s.Runtime.Name != "" {
		out.Runtime = &RuntimeRef{
			ID: s.Runtime.ID, Name: s.Runtime.Name, IconURL: s.Runtime.IconURL, BrandColor: s.Runtime.BrandColor,
			Tags: s.Runtime.Tags, Source: s.Runtime.Source,
		}
	}
	if !s.Status.Live() {
		out.ExitCode = s.ExitCode
	}
	if r := resourcesShape(s.Limits); r != (Resources{}) {
		out.Resources = &r
	}
	if s.Owner != "" {
		out.User = &Named{s.Owner, s.Owner}
	}
	if s.Project != "" {
		out.Project = &Named{s.Project, s.Project}
	}
	if s.Timeouts != (sandbox.Timeouts{}) {
		out.Timeout = &Timeouts{Idle: durationShape(s.Timeouts.Idle), Execution: durationShape(s.Timeouts.Execution), Paused: durationShape(s.Timeouts.Paused)}
	}
	out.NetworkEnabled = s.Network != nil
	if s.Network != nil || s.Port != 0 {
		out.Network = &Network{Enabled: s.Network != nil, Port: s.Port}
		if s.Network != nil {
			out.Network.Allow = s.Network.Allow
		}
	}
	if len(s.Command) > 0 {
		out.Command = &Command{Exec: s.Command, Mode: string(s.Mode)}
	}
	return out
}

func resourcesShape(l sandbox.Limits) Resources {
	var r Resources
	if l.MemoryBytes != 0 {
		r.Memory = sandbox.FormatBytes(l.MemoryBytes)
	}
	if l.CPUMillis != 0 {
		r.CPU = sandbox.FormatCPU(l.CPUMillis)
	}
	if l.DiskBytes != 0 {
		r.Disk = sandbox.FormatBytes(l.DiskBytes)
	}
	return r
}

func durationShape(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return sandbox.FormatDuration(d)
}
