package api

import (
	"context"
	"net/http"

	"github.com/sandgate/sandgate/keys"
)

// Health reports whether a server answers; it needs no key.
func (c *Client) Health(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/health", nil, nil, nil, nil)
}

// Info describes the server, and who it takes the caller for.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return fetch[Info](ctx, c, http.MethodGet, "/v1/info", nil, nil, nil)
}

// Keys lists public keys: an admin's list has everyone's.
func (c *Client) Keys(ctx context.Context) ([]keys.Key, error) {
	out, err := fetch[KeyList](ctx, c, http.MethodGet, "/v1/keys", nil, nil, nil)
	return out.Keys, err
}

// AddKey registers a public key. Exists when it is registered.
func (c *Client) AddKey(ctx context.Context, r AddKeyRequest) (keys.Key, error) {
	return fetch[keys.Key](ctx, c, http.MethodPost, "/v1/keys", nil, r, nil)
}

// DeleteKey removes a public key by its fingerprint, "SHA256:…".
func (c *Client) DeleteKey(ctx context.Context, fingerprint string) error {
	path, err := pathOf("/v1/keys/%s", "key", fingerprint)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil, nil)
}

// APIKeys lists API keys, without their secrets.
func (c *Client) APIKeys(ctx context.Context) ([]keys.APIKey, error) {
	out, err := fetch[APIKeyList](ctx, c, http.MethodGet, "/v1/api-keys", nil, nil, nil)
	return out.APIKeys, err
}

// AddAPIKey makes an API key. The answer has its secret, this once.
func (c *Client) AddAPIKey(ctx context.Context, r AddAPIKeyRequest) (NewAPIKey, error) {
	return fetch[NewAPIKey](ctx, c, http.MethodPost, "/v1/api-keys", nil, r, nil)
}

// DeleteAPIKey revokes an API key by its id.
func (c *Client) DeleteAPIKey(ctx context.Context, id string) error {
	path, err := pathOf("/v1/api-keys/%s", "key", id)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil, nil)
}
