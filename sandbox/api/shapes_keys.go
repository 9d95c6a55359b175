package api

import (
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// InviteRequest is the body of POST /v1/invites. Without a principal the keys
// will be those of whoever asks; ExpiresAt is a day from now and Uses 1 unless
// they say otherwise.
type InviteRequest struct {
	Principal    string     `json:"principal,omitempty"`
	Role         string     `json:"role,omitempty"`
	Scope        keys.Scope `json:"scope,omitzero"`
	KeyExpiresAt time.Time  `json:"keyExpiresAt,omitzero"`
	ExpiresAt    time.Time  `json:"expiresAt,omitzero"`
	Uses         int        `json:"uses,omitempty"`
}

// NewInvite answers POST /v1/invites: the invitation and, this once, its code.
type NewInvite struct {
	keys.Invite
	Code string `json:"code"`
}

// InviteList answers GET /v1/invites.
type InviteList struct {
	Invites []keys.Invite `json:"invites"`
}

// ProjectRequest is the body of POST /v1/projects.
type ProjectRequest struct {
	Kind        string `json:"kind,omitempty"` // "project" (the default) or "org"
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// Project is a registered project, or org.
type Project struct {
	Kind        string    `json:"kind"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Members     []Member  `json:"members"`
	CreatedBy   string    `json:"createdBy"`
	CreatedAt   time.Time `json:"createdAt"`
}

// Member is a principal in a project or org.
type Member struct {
	Principal string    `json:"principal"`
	AddedBy   string    `json:"addedBy"`
	AddedAt   time.Time `json:"addedAt"`
}

// ProjectList answers GET /v1/projects.
type ProjectList struct {
	Projects []Project `json:"projects"`
}

func projectShape(g sandbox.Group) Project {
	p := Project{
		Kind: string(g.Kind), Name: g.Name, Description: g.Description, Members: []Member{},
		CreatedBy: g.CreatedBy, CreatedAt: g.CreatedAt,
	}
	for _, m := range g.Members {
		p.Members = append(p.Members, Member(m))
	}
	return p
}

// scopeOf checks a scope that a client has sent.
func scopeOf(s keys.Scope) (keys.Scope, error) {
	verbs := make([]string, len(s.Verbs))
	for i, v := range s.Verbs {
		verbs[i] = string(v)
	}
	clean, field, err := keys.NewScope(s.Sandboxes, s.Projects, verbs, s.NoForwarding)
	if err != nil {
		return keys.Scope{}, fault.InvalidField(field, "%v", err)
	}
	return clean, nil
}
