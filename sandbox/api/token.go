package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// tokenLife is how long a stream URL opens without another key.
const tokenLife = 24 * time.Hour

// maxToken bounds a token, with the largest scope that a key can have.
const maxToken = 16 << 10

// streamTokens signs and checks the tokens in stream URLs. The published
// client fetches those URLs without its API key, so each carries the right to
// one stream of one execution, on behalf of the principal it was made for, and
// to nothing else.
type streamTokens struct {
	secret []byte
	now    func() time.Time
}

// tokenClaims is what a token says of the principal it was made for.
type tokenClaims struct {
	ID   string    `json:"i"`
	Role keys.Role `json:"r"`
	Key  string    `json:"k,omitempty"`
	// What the key may be used for, and the certificate it was.
	Scope       keys.Scope       `json:"s,omitzero"`
	Certificate keys.Certificate `json:"c,omitzero"`
	Expires     int64            `json:"e"`
}

// sign makes a token for path. It ends when the key of who does, if not before.
func (t streamTokens) sign(who keys.Principal, path string) string {
	expires := t.now().Add(tokenLife)
	if !who.Expires.IsZero() && who.Expires.Before(expires) {
		expires = who.Expires
	}
	c := tokenClaims{ID: who.ID, Role: who.Role, Key: who.KeyID, Scope: who.Scope, Certificate: who.Certificate, Expires: expires.Unix()}
	claims, err := json.Marshal(c)
	if err != nil { // strings and numbers
		panic(err)
	}
	body := base64.RawURLEncoding.EncodeToString(claims)
	return body + "." + base64.RawURLEncoding.EncodeToString(t.mac(body, path))
}

// verify returns the principal a token for path was made for. Whether the key
// behind the token is still good is for the caller to ask.
func (t streamTokens) verify(token, path string) (keys.Principal, error) {
	denied := fault.New(fault.Denied, "this stream URL is not valid here, or no longer; ask for the execution again to get a new one")
	body, sum, ok := strings.Cut(token, ".")
	if !ok || len(token) > maxToken {
		return keys.Principal{}, denied
	}
	mac, err := base64.RawURLEncoding.DecodeString(sum)
	if err != nil || !hmac.Equal(mac, t.mac(body, path)) {
		return keys.Principal{}, denied
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return keys.Principal{}, denied
	}
	var c tokenClaims
	if err := json.Unmarshal(raw, &c); err != nil || !t.now().Before(time.Unix(c.Expires, 0)) {
		return keys.Principal{}, denied
	}
	return keys.Principal{
		ID: c.ID, Role: c.Role, KeyID: c.Key, Door: "stream", Expires: time.Unix(c.Expires, 0), Scope: c.Scope, Certificate: c.Certificate,
	}, nil
}

func (t streamTokens) mac(body, path string) []byte {
	h := hmac.New(sha256.New, t.secret)
	h.Write([]byte("sandgate stream v1\x00" + body + "\x00" + path))
	return h.Sum(nil)
}

// streamURL is the URL of a stream of an execution or a job, with its token.
func (s *server) streamURL(r *request, execution, stream string) string {
	return s.signedURL(r, "/v1/streams/"+execution+"/"+stream)
}

// signedURL is the URL of a path that opens with its token alone.
func (s *server) signedURL(r *request, path string) string {
	return s.cfg.BaseURL(r.Request) + path + "?token=" + s.tokens.sign(r.ops.Principal(), path)
}
