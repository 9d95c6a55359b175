// Package github fetches the public keys that people publish on GitHub, or on
// another server that serves them at the same path, as GitLab and Gitea do. It
// is the one part of keys that uses the network, and only when asked to.
package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"

	"github.com/sandgate/sandgate/keys"
)

// BaseURL is where GitHub is.
const BaseURL = "https://github.com"

// maxAnswer bounds the answer in bytes.
const maxAnswer = 256 << 10

// What the errors of Fetch match, for errors.Is. Their text is a line for a
// person that says more; an error that matches neither is one of the server or
// of the way to it, and trying again later may help.
var (
	// ErrUser means that the given name is not the name of a user.
	ErrUser = errors.New("not the name of a user")
	// ErrNone means that there is no such user, or that they have no keys.
	ErrNone = errors.New("no keys")
)

// userRule is what GitHub allows as the name of a user; it keeps everything
// with a meaning in a URL out of the path.
var userRule = regexp.MustCompile(`^[A-Za-z0-9](-?[A-Za-z0-9]){0,38}$`)

// Fetch returns the public keys of a user, with those that are not accepted
// and why; see keys.Parse. The keys carry no comments, so the comment is set to
// "user@github.com" (the host of baseURL), which is where they are from.
//
// The error can match ErrUser, ErrNone, or that of ctx. ctx and the client bound
// the time.
func Fetch(ctx context.Context, client *http.Client, baseURL, user string) ([]keys.Parsed, []keys.Rejected, error) {
	if !userRule.MatchString(user) {
		return nil, nil, &lineError{ErrUser, fmt.Sprintf("%q is not the name of a GitHub user: use letters, digits and single hyphens, 39 at most", clip(user))}
	}
	base, err := url.Parse(baseURL)
	if err != nil || base.Host == "" {
		return nil, nil, fmt.Errorf("%q is not the address of a server", baseURL)
	}
	address := base.JoinPath(user + ".keys").String()
	body, err := get(ctx, client, address, base.Host, user)
	if err != nil {
		return nil, nil, err
	}
	parsed, rejected, err := keys.Parse(bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("the answer of %s is not a list of keys: %w", address, err)
	}
	if len(parsed) == 0 && len(rejected) == 0 {
		return nil, nil, &lineError{ErrNone, fmt.Sprintf("%s has no public keys on %s", user, base.Host)}
	}
	for i := range parsed {
		if parsed[i].Key.Comment == "" {
			parsed[i].Key.Comment = user + "@" + base.Host
		}
	}
	return parsed, rejected, nil
}

// get returns the body of the address, bounded.
func get(ctx context.Context, client *http.Client, address, host, user string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address: %w", address, err)
	}
	unreachable := func(err error) error {
		if ctx.Err() != nil {
			return fmt.Errorf("fetch %s: %w", address, ctx.Err())
		}
		return &lineError{err, fmt.Sprintf("%s cannot be reached from here: save %s into a file elsewhere, and add that file", host, address)}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, &lineError{ErrNone, fmt.Sprintf("there is no user %q on %s", user, host)}
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %d %s: try again later", address, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, unreachable(err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer of %s is longer than %d KiB: this is not a list of keys", address, maxAnswer>>10)
	}
	return body, nil
}

// lineError is one line for a person; the cause is for errors.Is and the log.
type lineError struct {
	cause error
	line  string
}

func (e *lineError) Error() string { return e.line }
func (e *lineError) Unwrap() error { return e.cause }

// clip bounds what is quoted in a message.
func clip(s string) string {
	if len(s) <= 40 {
		return s
	}
	return s[:40] + "…"
}
