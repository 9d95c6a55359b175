package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sandgate/sandgate/keys"
)

// CreateInvite makes an invitation. The answer has its code, this once.
func (c *Client) CreateInvite(ctx context.Context, r InviteRequest) (NewInvite, error) {
	return fetch[NewInvite](ctx, c, http.MethodPost, "/v1/invites", nil, r, nil)
}

// Invites lists invitations, without their codes.
func (c *Client) Invites(ctx context.Context) ([]keys.Invite, error) {
	out, err := fetch[InviteList](ctx, c, http.MethodGet, "/v1/invites", nil, nil, nil)
	return out.Invites, err
}

// RevokeInvite takes an invitation back by its id.
func (c *Client) RevokeInvite(ctx context.Context, id string) error {
	path, err := pathOf("/v1/invites/%s", "invite", id)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil, nil)
}

// Projects lists registered projects, or orgs when kind is "org".
func (c *Client) Projects(ctx context.Context, kind string) ([]Project, error) {
	out, err := fetch[ProjectList](ctx, c, http.MethodGet, "/v1/projects", url.Values{"kind": {kind}}, nil, nil)
	return out.Projects, err
}

// CreateProject registers a project, or an org.
func (c *Client) CreateProject(ctx context.Context, r ProjectRequest) (Project, error) {
	return fetch[Project](ctx, c, http.MethodPost, "/v1/projects", nil, r, nil)
}

// DeleteProject makes the name a mere label again.
func (c *Client) DeleteProject(ctx context.Context, kind, name string) error {
	path, err := pathOf("/v1/projects/"+kind+"/%s", kind, name)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil, nil)
}

// AddMember adds a principal to a project or org.
func (c *Client) AddMember(ctx context.Context, kind, name, principal string) error {
	return c.member(ctx, http.MethodPut, kind, name, principal)
}

// RemoveMember takes a principal out of a project or org.
func (c *Client) RemoveMember(ctx context.Context, kind, name, principal string) error {
	return c.member(ctx, http.MethodDelete, kind, name, principal)
}

func (c *Client) member(ctx context.Context, method, kind, name, principal string) error {
	group, err := pathOf("/v1/projects/"+kind+"/%s", kind, name)
	if err != nil {
		return err
	}
	member, err := pathOf("/members/%s", "principal", principal)
	if err != nil {
		return err
	}
	return c.call(ctx, method, group+member, nil, nil, nil, nil)
}
