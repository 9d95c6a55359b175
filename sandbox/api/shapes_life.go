package api

import (
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// SnapshotRef is the snapshot a sandbox was made from. A public one has the
// organization that owns it, a private one its owner.
type SnapshotRef struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Public bool   `json:"public"`
	Org    *Named `json:"org,omitempty"`
	User   *Named `json:"user,omitempty"`
}

func snapshotRefShape(p sandbox.Snapshot) *SnapshotRef {
	out := &SnapshotRef{ID: p.ID, Name: p.Name, Tag: p.Tag, Public: p.Public}
	if p.Public {
		out.Org = &Named{p.Org, p.Org}
	} else {
		out.User = &Named{p.Owner, p.Owner}
	}
	return out
}

// EnvRequest is the body of PATCH /sandbox/env/{id}; null deletes a variable.
type EnvRequest struct {
	Env map[string]*string `json:"env"`
}

// Env answers it: all variables, after the change.
type Env struct {
	Env map[string]string `json:"env"`
}

// UpdateRequest is the body of PATCH /v1/sandboxes/{id}. What is left out
// stays; an empty quantity does, too.
type UpdateRequest struct {
	Name        *string    `json:"name,omitempty"`
	Description *string    `json:"description,omitempty"`
	Resources   *Resources `json:"resources,omitempty"`
	Timeout     *Timeouts  `json:"timeout,omitempty"`
	Network     *Allow     `json:"network,omitempty"`
}

// Allow changes what a sandbox may reach: null is every public address, an
// empty list nothing.
type Allow struct {
	Allow []string `json:"allow"`
}

// ForkRequest is the body of POST /v1/sandboxes/{id}/fork. What is left out is
// as in the sandbox that is forked, but for its variables: they are inherited
// with InheritEnv alone.
type ForkRequest struct {
	Name        string            `json:"name,omitempty"`
	Description string            `json:"description,omitempty"`
	InheritEnv  bool              `json:"inheritEnv,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Resources   *Resources        `json:"resources,omitempty"`
	Timeout     *Timeouts         `json:"timeout,omitempty"`
}

// Usage answers GET /v1/sandboxes/{id}/usage: what a sandbox uses now, and has
// used since it was made. DiskBytes is -1 when it is not known.
type Usage struct {
	SandboxID      string     `json:"sandboxId"`
	At             time.Time  `json:"at"`
	MemoryBytes    int64      `json:"memoryBytes"`
	DiskBytes      int64      `json:"diskBytes"`
	Processes      int64      `json:"processes"`
	CPUTimeMs      int64      `json:"cpuTimeMs"`
	MemoryByteSec  float64    `json:"memoryByteSec"`
	NetworkIngress int64      `json:"networkIngressBytes"`
	NetworkEgress  int64      `json:"networkEgressBytes"`
	UptimeMs       int64      `json:"uptimeMs"`
	Resources      *Resources `json:"resources,omitempty"`
}

func usageShape(u sandbox.Usage) Usage {
	out := Usage{
		SandboxID: u.SandboxID, At: u.At.UTC(), MemoryBytes: u.MemoryBytes, DiskBytes: u.DiskBytes, Processes: u.Processes,
		CPUTimeMs: u.CPU.Milliseconds(), MemoryByteSec: u.MemorySecond, NetworkIngress: u.NetIn, NetworkEgress: u.NetOut,
		UptimeMs: u.Uptime.Milliseconds(),
	}
	if r := resourcesShape(u.Limits); r != (Resources{}) {
		out.Resources = &r
	}
	return out
}

// Stats answers GET /v1/stats: what all sandboxes together, as far as the
// caller may see them, used over a time. Fields that end in Now are of this
// moment.
type Stats struct {
	Start          time.Time      `json:"start,omitzero"`
	End            time.Time      `json:"end"`
	Sandboxes      int            `json:"sandboxes"`
	ByStatusNow    map[string]int `json:"byStatusNow"`
	Executions     int            `json:"executions"`
	Jobs           int            `json:"jobs"`
	CPUTimeMs      int64          `json:"cpuTimeMs"`
	MemoryByteSec  float64        `json:"memoryByteSec"`
	NetworkIngress int64          `json:"networkIngressBytes"`
	NetworkEgress  int64          `json:"networkEgressBytes"`
	UptimeMs       int64          `json:"uptimeMs"`
	MemoryBytesNow int64          `json:"memoryBytesNow"`
	DiskBytesNow   int64          `json:"diskBytesNow"`
}

func statsShape(st sandbox.Stats) Stats {
	out := Stats{
		Start: st.Start.UTC(), End: st.End.UTC(), Sandboxes: st.Sandboxes, ByStatusNow: map[string]int{}, Executions: st.Executions, Jobs: st.Jobs,
		CPUTimeMs: st.CPU.Milliseconds(), MemoryByteSec: st.MemorySecond, NetworkIngress: st.NetIn, NetworkEgress: st.NetOut,
		UptimeMs: st.Uptime.Milliseconds(), MemoryBytesNow: st.MemoryBytes, DiskBytesNow: st.DiskBytes,
	}
	for status, n := range st.ByStatus {
		out.ByStatusNow[string(status)] = n
	}
	return out
}
