package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxBody bounds a request body: 64 MiB of files, in base64, and the rest.
const maxBody = 64<<20*4/3 + 1<<20

// contentNDJSON asks for progress lines before the answer; see writeProgress.
const contentNDJSON = "application/x-ndjson"

// envelope is the frame of every answer that is not a byte stream. Progress
// stands alone in a line of its own, before the answer.
type envelope struct {
	Success  bool            `json:"success"`
	Data     json.RawMessage `json:"data,omitempty"`
	Message  string          `json:"message,omitempty"`
	Code     string          `json:"code,omitempty"`
	Field    string          `json:"field,omitempty"`
	Progress string          `json:"progress,omitempty"`
	// also is a JSON object whose fields stand beside success.
	also json.RawMessage
}

// beside is an answer some of whose fields the published client looks for
// beside success and not in the data. They are in both.
type beside struct {
	data, also any
}

// success makes the envelope of an answer; nil data is left out.
func success(data any) (envelope, error) {
	env := envelope{Success: true}
	var err error
	if b, ok := data.(beside); ok {
		if env.also, err = marshal(b.also); err != nil {
			return env, fmt.Errorf("encode answer: %w", err)
		}
		data = b.data
	}
	if data == nil {
		return env, nil
	}
	if env.Data, err = marshal(data); err != nil {
		return env, fmt.Errorf("encode answer: %w", err)
	}
	return env, nil
}

// encode writes an envelope as one JSON object.
func (e envelope) encode() ([]byte, error) {
	raw, err := marshal(e)
	if err == nil && len(e.also) > len("{}") {
		raw = append(append(raw[:len(raw)-1], ','), e.also[1:]...)
	}
	return raw, err
}

// marshal is json.Marshal without the escapes that only HTML needs.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func writeEnvelope(w http.ResponseWriter, status int, e envelope) {
	body, err := e.encode()
	if err != nil { // strings and checked raw JSON always encode
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone away needs no answer
}

// decode reads a JSON body into v. Fields that v does not have are ignored:
// the published client may know more than this server. An empty body is {}.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.New(fault.Invalid, "the body is larger than %d MiB; send fewer files at once", e.Limit>>20)
	}
	if err != nil {
		return fault.Wrap(err, fault.Cancelled, "the request body could not be read")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if err = json.Unmarshal(body, v); err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return fault.New(fault.Invalid, "the body must be a JSON object, not %s", article(e.Value))
		}
		return fault.InvalidField(e.Field, "must be %s, not %s", jsonName(e.Type.Kind().String()), article(e.Value))
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fault.New(fault.Invalid, "the body is not JSON: %v (at byte %d)", e, e.Offset)
	}
	if e, ok := errors.AsType[*time.ParseError](err); ok {
		return fault.New(fault.Invalid, "%q is not a time; write it as 2027-01-31T12:00:00Z", clip(e.Value))
	}
	return fault.New(fault.Invalid, "the body cannot be read: %v", err)
}

// jsonName says in JSON's words what a Go kind is written as.
func jsonName(kind string) string {
	switch {
	case kind == "string":
		return "a string"
	case kind == "bool":
		return "true or false"
	case kind == "slice":
		return "an array"
	case kind == "struct" || kind == "map":
		return "an object"
	}
	return "a number"
}

// article puts the article before a word of encoding/json ("number 12" keeps
// its value out: it may be long).
func article(word string) string {
	word, _, _ = strings.Cut(word, " ")
	switch word {
	case "array", "object":
		return "an " + word
	case "bool":
		return "a boolean"
	}
	return "a " + word
}
