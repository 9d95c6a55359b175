package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// AuditKind is what an audit record tells of.
type AuditKind string

// The audit kinds.
const (
	AuditLogin      AuditKind = "login"      // somebody has proven who they are
	AuditJoin       AuditKind = "join"       // a key was registered with an invitation code
	AuditRefused    AuditKind = "refused"    // somebody was turned away, or something was not allowed
	AuditConnect    AuditKind = "connect"    // a connection uses a sandbox from now on
	AuditDisconnect AuditKind = "disconnect" // the connection that did has ended
	AuditLogout     AuditKind = "logout"     // a connection that was logged in has ended
	AuditStart      AuditKind = "start"      // something was begun: What says what
	AuditEnd        AuditKind = "end"        // it has ended
	AuditReload     AuditKind = "reload"     // the server has read its files anew
	AuditChange     AuditKind = "change"     // keys, invitations, projects or recordings: What says what
)

// AuditRecord is one line of the audit log: who did what, from where, with
// which key. Whoever makes one has cleaned every string in it: nothing that a
// client sends may steer a terminal or look like another line.
type AuditRecord struct {
	Time time.Time `json:"time"`
	Kind AuditKind `json:"kind"`
	// What is done: shell, exec, sftp, api, command, forward, listen, agent, …
	What string `json:"what,omitempty"`

	Principal   string `json:"principal,omitempty"`
	Role        string `json:"role,omitempty"`
	Key         string `json:"key,omitempty"`         // fingerprint, or id of an API key
	Certificate string `json:"certificate,omitempty"` // key id and serial, where one was used
	Door        string `json:"door,omitempty"`        // ssh, http, socket
	Remote      string `json:"remote,omitempty"`      // address the client came from
	Connection  string `json:"connection,omitempty"`  // the same for all records of one connection
	Channel     int64  `json:"channel,omitempty"`     // counts within the connection
	User        string `json:"user,omitempty"`        // ssh user name
	Client      string `json:"client,omitempty"`      // software it says it is

	Sandbox string `json:"sandbox,omitempty"` // id, or the reference that was used
	Session string `json:"session,omitempty"` // name of the session
	Target  string `json:"target,omitempty"`  // address, path or subsystem; what is changed: fingerprint, id or name
	Owner   string `json:"owner,omitempty"`   // principal whose that is, or who is added or removed
	Command string `json:"command,omitempty"` // only where the server is told to keep it
	TTY     bool   `json:"tty,omitempty"`

	DurationMS int64  `json:"durationMs,omitempty"`
	In         int64  `json:"in,omitempty"`  // bytes that came from the client
	Out        int64  `json:"out,omitempty"` // bytes that went to it
	Exit       *int   `json:"exit,omitempty"`
	Signal     string `json:"signal,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Sessions and Forwards count what a connection did in a sandbox.
	Sessions int `json:"sessions,omitempty"`
	Forwards int `json:"forwards,omitempty"`
	// Unlogged counts records like this one that came too fast to be written.
	Unlogged int `json:"unlogged,omitempty"`
}

// AuditQuery selects audit records. Empty fields do not restrict.
type AuditQuery struct {
	Principal string
	Sandbox   string
	Kinds     []AuditKind
	Since     time.Time
	Limit     int  // the last so many; default 100, at most 10000
	Follow    bool // go on with those that are written from now on
}

// Matches reports whether a record is asked for.
func (q AuditQuery) Matches(r *AuditRecord) bool {
	if q.Principal != "" && r.Principal != q.Principal || q.Sandbox != "" && r.Sandbox != q.Sandbox || r.Time.Before(q.Since) {
		return false
	}
	return len(q.Kinds) == 0 || slices.Contains(q.Kinds, r.Kind)
}

// AuditReader reads the audit log: the records that match, the oldest first,
// each handed to fn, until ctx ends or fn fails. For one who follows, a nil
// record says that all there was has been read, and then from time to time that
// nothing was written.
type AuditReader interface {
	ReadAudit(ctx context.Context, q AuditQuery, fn func(*AuditRecord) error) error
}

// Reloaded is what became of one file, or folder, that a reload read anew.
type Reloaded struct {
	What  string `json:"what"`            // "host keys"
	Path  string `json:"path,omitempty"`  // the file
	Note  string `json:"note,omitempty"`  // what is there now, in a few words
	Error string `json:"error,omitempty"` // why what was there before stays
}

// Reload is the outcome of a reload. Restart is what only a restart changes.
type Reload struct {
	Files   []Reloaded `json:"files"`
	Restart []string   `json:"restart"`
}

// ServerOperations are what an Actor can do with the server as a whole. They
// are for admins.
type ServerOperations interface {
	// Audit reads the audit log.
	Audit(ctx context.Context, q AuditQuery, fn func(*AuditRecord) error) error
	// ReloadServer has the server read its files anew. What cannot be read
	// stays as it was, and is told in the answer.
	ReloadServer(ctx context.Context) (Reload, error)
}

// Audit reads the audit log.
func (a *Actor) Audit(ctx context.Context, q AuditQuery, fn func(*AuditRecord) error) error {
	if err := a.allow("Audit"); err != nil {
		return err
	}
	if !a.who.IsAdmin() || a.who.Scope.Fenced() {
		return fault.New(fault.Denied, "the audit log is for admins")
	}
	if a.e.cfg.Audit == nil {
		return fault.New(fault.Unsupported, "this server keeps no audit log; start it without --audit-log off")
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > 10000 {
		return fault.InvalidField("limit", "must be 1 to 10000")
	}
	if q.Sandbox != "" && !IsID(q.Sandbox) {
		s, err := a.resolve(ctx, q.Sandbox, "Audit")
		if err != nil {
			return err
		}
		q.Sandbox = s.ID
	}
	return a.e.cfg.Audit.ReadAudit(ctx, q, fn)
}

// ReloadServer has the server read its files anew.
func (a *Actor) ReloadServer(ctx context.Context) (Reload, error) {
	if err := a.allow("ReloadServer"); err != nil {
		return Reload{}, err
	}
	if !a.who.IsAdmin() || a.who.Scope.Fenced() {
		return Reload{}, fault.New(fault.Denied, "only an admin can reload the server")
	}
	if a.e.cfg.Reload == nil {
		return Reload{}, fault.New(fault.Unsupported, "this server has nothing to reload")
	}
	return a.e.cfg.Reload(ctx, a.who.ID)
}
