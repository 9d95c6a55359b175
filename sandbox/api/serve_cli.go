package api

import "time"

// The published client finds a sandbox across organizations by these two
// endpoints, and wants null for what is not there.

// ResolvedSandbox answers GET /cli/sandbox/{id}, and stands in the list of
// GET /cli/sandbox. This server has one region.
type ResolvedSandbox struct {
	ID          string     `json:"id"`
	Name        *string    `json:"name"`
	Description *string    `json:"description"`
	Region      string     `json:"region"`
	Status      string     `json:"status"`
	CreatedAt   *time.Time `json:"createdAt"`
	OrgID       string     `json:"orgId"`
	OrgName     *string    `json:"orgName"`
	ProjectID   *string    `json:"projectId"`
}

// ResolvedList answers GET /cli/sandbox.
type ResolvedList struct {
	Sandboxes []ResolvedSandbox `json:"sandboxes"`
	Total     int               `json:"total"`
}

// region is the only one.
const region = "local"

func resolvedShape(s Sandbox) ResolvedSandbox {
	orNull := func(v string) *string {
		if v == "" {
			return nil
		}
		return &v
	}
	out := ResolvedSandbox{
		ID: s.SandboxID, Name: orNull(s.Name), Description: orNull(s.Description), Region: region, Status: s.Status,
		CreatedAt: &s.CreatedAt, OrgID: s.Org.ID, OrgName: orNull(s.Org.Name),
	}
	if s.Project != nil {
		out.ProjectID = orNull(s.Project.ID)
	}
	return out
}

func (s *server) cliGet(r *request) (any, error) {
	sb, err := r.ops.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return resolvedShape(sandboxShape(sb)), nil
}

func (s *server) cliList(r *request) (any, error) {
	data, err := s.list(r)
	if err != nil {
		return nil, err
	}
	list := data.(SandboxList)
	out := ResolvedList{Sandboxes: []ResolvedSandbox{}, Total: list.Total}
	for _, sb := range list.Sandboxes {
		out.Sandboxes = append(out.Sandboxes, resolvedShape(sb))
	}
	return out, nil
}
