package api

import (
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
)

// Runtime describes a base environment.
type Runtime struct {
	ID           string              `json:"id"`
	Name         string              `json:"name"`
	Description  string              `json:"description,omitempty"`
	IconURL      string              `json:"iconUrl,omitempty"`
	BrandColor   string              `json:"brandColor,omitempty"`
	URL          string              `json:"url,omitempty"`
	Tags         []string            `json:"tags,omitempty"`
	Requirements RuntimeRequirements `json:"requirements"`
	Ready        bool                `json:"ready"`            // its files are on the server already
	Source       string              `json:"source,omitempty"` // where they come from
	Digest       string              `json:"digest,omitempty"`
}

// RuntimeRequirements is the least a sandbox of a runtime needs.
type RuntimeRequirements struct {
	Resources
	NetworkEnabled bool `json:"networkEnabled"`
}

// RuntimeList answers GET /sandbox/runtimes.
type RuntimeList struct {
	Runtimes []Runtime `json:"runtimes"`
	Total    int       `json:"total"`
}

func runtimeShape(r sandbox.Runtime) Runtime {
	return Runtime{
		ID: r.ID, Name: r.Name, Description: r.Description, IconURL: r.IconURL, BrandColor: r.BrandColor,
		URL: r.URL, Tags: r.Tags, Requirements: RuntimeRequirements{Resources: resourcesShape(r.Requirements)},
		Ready: r.Ready, Source: r.Source, Digest: r.Digest,
	}
}

// AddKeyRequest is the body of POST /v1/keys. Key is one line of an
// authorized_keys file. Without a principal the key belongs to whoever asks,
// and without a role it gets theirs; a key for somebody else makes a member.
type AddKeyRequest struct {
	Key       string    `json:"key"`
	Principal string    `json:"principal,omitempty"`
	Role      string    `json:"role,omitempty"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Scope is what the key may be used for, within what its principal may do.
	Scope keys.Scope `json:"scope,omitzero"`
	// NoTouch accepts a security key that nobody has touched.
	NoTouch bool `json:"noTouch,omitempty"`
}

// KeyList answers GET /v1/keys.
type KeyList struct {
	Keys []keys.Key `json:"keys"`
}

// AddAPIKeyRequest is the body of POST /v1/api-keys.
type AddAPIKeyRequest struct {
	Name      string    `json:"name,omitempty"`
	Principal string    `json:"principal,omitempty"`
	Role      string    `json:"role,omitempty"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Scope is what the key may be used for, within what its principal may do.
	Scope keys.Scope `json:"scope,omitzero"`
}

// NewAPIKey answers POST /v1/api-keys: the key and, this once, its secret.
type NewAPIKey struct {
	keys.APIKey
	Key string `json:"key"`
}

// APIKeyList answers GET /v1/api-keys.
type APIKeyList struct {
	APIKeys []keys.APIKey `json:"apiKeys"`
}

// Info answers GET /v1/info: what a client needs to know of the server.
type Info struct {
	Version string `json:"version"`
	Engine  string `json:"engine,omitempty"`
	Mode    string `json:"mode,omitempty"` // of the engine: what it can do on its host
	// SSH is the address the gateway listens on, "host:port"; empty without
	// one. An unspecified host means: the one the API was reached at.
	SSH string `json:"ssh,omitempty"`
	// HostKeys prove that a gateway is this one: lines "type base64".
	HostKeys  []string `json:"hostKeys"`
	Principal Who      `json:"principal"` // filled in by the handler
}

// Who is the principal a server takes the caller for.
type Who struct {
	ID   string `json:"id"`
	Role string `json:"role"`
}
