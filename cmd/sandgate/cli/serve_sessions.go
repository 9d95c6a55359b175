package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// sessionFlags are the flags of `serve` about sessions and recordings.
type sessionFlags struct {
	record, keep, max, sessionKeep string
	input                          bool
}

// sessionConfig is what they say; zero values are the Engine's defaults.
type sessionConfig struct {
	record         sandbox.RecordPolicy
	recordInput    bool
	recordingsKeep time.Duration
	recordingsMax  int64
	sessionKeep    time.Duration
}

func (f *sessionFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.record, "record", string(sandbox.RecordOptIn), "which sessions to record: never, opt-in (those that ask for it) or always")
	fl.BoolVar(&f.input, "record-input", false, "let those who ask for it have what they type recorded, passwords included")
	fl.StringVar(&f.keep, "recordings-keep", "30d", "how long to keep a recording")
	fl.StringVar(&f.max, "recordings-max", "5Gi", "how much to keep of all recordings; the oldest of who has most go first")
	fl.StringVar(&f.sessionKeep, "session-keep", "24h", "how long a session goes on without a client; 0 is for ever")
}

// config reads the flags. Those that were never registered have no say.
func (f *sessionFlags) config() (c sessionConfig, err error) {
	c.record, c.recordInput = sandbox.RecordPolicy(f.record), f.input
	if f.record != "" && !c.record.Valid() {
		return c, fault.InvalidField("--record", "%q is not a policy: use never, opt-in or always", f.record)
	}
	if c.recordingsKeep, err = atLeastFor("--recordings-keep", f.keep, time.Minute); err != nil {
		return c, err
	}
	if f.max != "" {
		if c.recordingsMax, err = sandbox.ParseBytes(f.max); err != nil {
			return c, fault.InvalidField("--recordings-max", "%v", err)
		}
		if c.recordingsMax < 1<<20 {
			return c, fault.InvalidField("--recordings-max", "must be at least 1Mi")
		}
	}
	if f.sessionKeep == "0" || f.sessionKeep == "0s" {
		c.sessionKeep = -1
		return c, nil
	}
	c.sessionKeep, err = atLeastFor("--session-keep", f.sessionKeep, time.Second)
	return c, err
}

// atLeastFor reads a duration that is not shorter than least.
func atLeastFor(flag, value string, least time.Duration) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	d, err := sandbox.ParseDuration(value)
	if err != nil {
		return 0, fault.InvalidField(flag, "%v", err)
	}
	if d < least {
		return 0, fault.InvalidField(flag, "must be at least %s", sandbox.FormatDuration(least))
	}
	return d, nil
}

// apply hands them to the Engine.
func (c sessionConfig) apply(to *sandbox.Config) {
	to.Record, to.RecordInput = c.record, c.recordInput
	to.RecordingsKeep, to.RecordingsMax, to.SessionKeep = c.recordingsKeep, c.recordingsMax, c.sessionKeep
}
