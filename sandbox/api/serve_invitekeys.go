package api

import (
	"net/http"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
)

// keyRoutes are the endpoints of invitations, and of projects and orgs.
func (s *server) keyRoutes() {
	s.handle("GET /v1/invites", http.StatusOK, s.invites)
	s.handle("POST /v1/invites", http.StatusCreated, s.createInvite)
	s.handle("DELETE /v1/invites/{id}", http.StatusOK, s.revokeInvite)
	s.handle("GET /v1/projects", http.StatusOK, s.projects)
	s.handle("POST /v1/projects", http.StatusCreated, s.createProject)
	s.handle("DELETE /v1/projects/{kind}/{name}", http.StatusOK, s.deleteProject)
	s.handle("PUT /v1/projects/{kind}/{name}/members/{principal}", http.StatusOK, s.addMember)
	s.handle("DELETE /v1/projects/{kind}/{name}/members/{principal}", http.StatusOK, s.removeMember)
}

func (s *server) invites(r *request) (any, error) {
	all, err := r.ops.Invites(r.Context())
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []keys.Invite{}
	}
	return InviteList{Invites: all}, nil
}

func (s *server) createInvite(r *request) (any, error) {
	var body InviteRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	scope, err := scopeOf(body.Scope)
	if err != nil {
		return nil, err
	}
	i, code, err := r.ops.CreateInvite(r.Context(), keys.Invite{
		Principal: body.Principal, Role: keys.Role(body.Role), Scope: scope,
		KeyExpiresAt: body.KeyExpiresAt, ExpiresAt: body.ExpiresAt, Uses: body.Uses,
	})
	if err != nil {
		return nil, err
	}
	return NewInvite{Invite: i, Code: code}, nil
}

func (s *server) revokeInvite(r *request) (any, error) {
	return nil, r.ops.RevokeInvite(r.Context(), r.PathValue("id"))
}

// kindOf is the kind of group a request is about.
func kindOf(kind string) sandbox.GroupKind {
	if kind == "" {
		return sandbox.ProjectGroup
	}
	return sandbox.GroupKind(kind)
}

func (s *server) projects(r *request) (any, error) {
	all, err := r.ops.Projects(r.Context(), kindOf(r.URL.Query().Get("kind")))
	if err != nil {
		return nil, err
	}
	list := ProjectList{Projects: []Project{}}
	for _, g := range all {
		list.Projects = append(list.Projects, projectShape(g))
	}
	return list, nil
}

func (s *server) createProject(r *request) (any, error) {
	var body ProjectRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	g, err := r.ops.CreateProject(r.Context(), kindOf(body.Kind), body.Name, body.Description)
	if err != nil {
		return nil, err
	}
	return projectShape(g), nil
}

func (s *server) deleteProject(r *request) (any, error) {
	return nil, r.ops.DeleteProject(r.Context(), kindOf(r.PathValue("kind")), r.PathValue("name"))
}

func (s *server) addMember(r *request) (any, error) {
	return nil, r.ops.AddMember(r.Context(), kindOf(r.PathValue("kind")), r.PathValue("name"), r.PathValue("principal"))
}

func (s *server) removeMember(r *request) (any, error) {
	return nil, r.ops.RemoveMember(r.Context(), kindOf(r.PathValue("kind")), r.PathValue("name"), r.PathValue("principal"))
}
