package store

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Every table has a function that lists pointers to the fields of a record in
// the order of the columns. The same list serves to read a row and to write
// one: database/sql follows pointers when it binds them, and the two types
// below go both ways.

// instant reads and writes a time as nanoseconds since the epoch.
type instant struct{ t *time.Time }

// Value implements driver.Valuer.
func (i instant) Value() (driver.Value, error) {
	n := nanos(*i.t)
	if n != 0 && !time.Unix(0, n).Equal(*i.t) {
		// Such as an expiry in the year 9999. Wrapped around, it would lie in
		// the past.
		return nil, &unstorableError{fmt.Sprintf("the time %s is not between 1678 and 2262", i.t.Format(time.RFC3339)), nil}
	}
	return n, nil
}

// Scan implements sql.Scanner.
func (i instant) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("read time: column holds %T", v)
	}
	*i.t = time.Time{}
	if n != 0 {
		*i.t = time.Unix(0, n).UTC()
	}
	return nil
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// document reads and writes a list or a map as JSON; v is a pointer to it.
type document struct{ v any }

// Value implements driver.Valuer.
func (d document) Value() (driver.Value, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // what the user wrote comes back as it was
	if err := enc.Encode(d.v); err != nil {
		return nil, &unstorableError{"a value is not valid JSON", err}
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// Scan implements sql.Scanner.
func (d document) Scan(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("read JSON: column holds %T", v)
	}
	return json.Unmarshal([]byte(s), d.v)
}

// unstorableError is a value that a column cannot hold: a malformed
// json.RawMessage of a client, a time out of range.
type unstorableError struct {
	message string // for a person
	cause   error  // may be nil
}

func (e *unstorableError) Error() string { return e.message }
func (e *unstorableError) Unwrap() error { return e.cause }

// marks returns n comma-separated placeholders.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }

// assignments returns "a=?,b=?" for the columns "a, b".
func assignments(columns string) string {
	return strings.ReplaceAll(columns, ", ", "=?,") + "=?"
}
