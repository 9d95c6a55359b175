package api

import (
	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

func (s *server) keys(r *request) (any, error) {
	all, err := r.ops.ListKeys(r.Context())
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []keys.Key{}
	}
	return KeyList{Keys: all}, nil
}

func (s *server) addKey(r *request) (any, error) {
	var body AddKeyRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	// Type and fingerprint come from the key itself, never from the client.
	k, err := keys.ParseKey(body.Key)
	if err != nil {
		return nil, fault.InvalidField("key", "%v", err)
	}
	k.Principal, k.Role, k.ExpiresAt = body.Principal, keys.Role(body.Role), body.ExpiresAt
	if body.NoTouch && !k.SecurityKey() {
		return nil, fault.InvalidField("noTouch", "is for security keys (sk-…), and this key is none")
	}
	k.NoTouch = k.NoTouch || body.NoTouch
	if k.Scope, err = scopeOf(body.Scope); err != nil {
		return nil, err
	}
	return r.ops.AddKey(r.Context(), k)
}

func (s *server) deleteKey(r *request) (any, error) {
	return nil, r.ops.DeleteKey(r.Context(), r.PathValue("fingerprint"))
}

func (s *server) apiKeys(r *request) (any, error) {
	all, err := r.ops.ListAPIKeys(r.Context())
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []keys.APIKey{}
	}
	return APIKeyList{APIKeys: all}, nil
}

func (s *server) addAPIKey(r *request) (any, error) {
	var body AddAPIKeyRequest
	if err := decode(r.w, r.Request, &body); err != nil {
		return nil, err
	}
	scope, err := scopeOf(body.Scope)
	if err != nil {
		return nil, err
	}
	k, secret, err := r.ops.AddAPIKey(r.Context(), keys.APIKey{
		Name: body.Name, Principal: body.Principal, Role: keys.Role(body.Role), ExpiresAt: body.ExpiresAt, Scope: scope,
	})
	if err != nil {
		return nil, err
	}
	return NewAPIKey{APIKey: k, Key: secret}, nil
}

func (s *server) deleteAPIKey(r *request) (any, error) {
	return nil, r.ops.DeleteAPIKey(r.Context(), r.PathValue("id"))
}
