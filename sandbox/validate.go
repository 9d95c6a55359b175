package sandbox

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Bounds on what a request may carry.
const (
	maxDescription = 1024
	maxEnv         = 256
	maxEnvValue    = 32 << 10
	maxMetadata    = 64 << 10
	maxFiles       = 1000
	maxArgs        = 4096
	maxArgBytes    = 1 << 20
	minMemory      = 32 << 20 // a guest does not start in less
	minDisk        = 16 << 20
)

// validate checks a create request. It changes nothing but fills the mode in.
func (r *CreateRequest) validate(caps driver.Capabilities) error {
	if r.Name != "" {
		if err := ValidateName(r.Name); err != nil {
			return err
		}
	}
	if len(r.Description) > maxDescription {
		return fault.InvalidField("description", "longer than %d bytes", maxDescription)
	}
	switch {
	case r.Snapshot != "" && r.Runtime != "":
		return fault.InvalidField("snapshot", "cannot be given together with runtime: a snapshot includes its own")
	case r.Snapshot != "" && r.RuntimeID != "":
		return fault.InvalidField("snapshot", "cannot be given together with runtimeId: a snapshot includes its own")
	case r.Runtime != "" && r.RuntimeID != "":
		return fault.InvalidField("runtimeId", "cannot be given together with runtime")
	}
	switch r.Mode {
	case "":
		r.Mode = Interactive
	case Oneshot, Interactive:
	default:
		return fault.InvalidField("mode", "%q is not a mode: use oneshot or interactive", clip(string(r.Mode), 32))
	}
	if r.Mode == Oneshot && len(r.Command) == 0 {
		return fault.InvalidField("command", "a oneshot sandbox needs a command to run")
	}
	for field, v := range map[string]string{"project": r.Project, "org": r.Org} {
		if v != "" && !projectRule.MatchString(v) {
			return fault.InvalidField(field, "%q is not an id: use 1 to 64 letters, digits, dots, hyphens and underscores", clip(v, 64))
		}
	}
	if err := r.Timeouts.validate(); err != nil {
		return err
	}
	meta := 0
	for k, v := range r.Metadata {
		if !json.Valid(v) {
			return fault.InvalidField("metadata", "%q is not valid JSON", clip(k, 64))
		}
		meta += len(k) + len(v)
	}
	if meta > maxMetadata {
		return fault.InvalidField("metadata", "larger than %d bytes", maxMetadata)
	}
	if err := validateEnv(r.Env); err != nil {
		return err
	}
	if err := validateFiles(r.Files); err != nil {
		return err
	}
	if len(r.Command) > 0 {
		if err := validateCommand(r.Command); err != nil {
			return err
		}
	}
	return validateLimits(r.Limits, caps)
}

func validateEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return fault.InvalidField("env", "more than %d variables", maxEnv)
	}
	for k, v := range env {
		switch {
		case !envRule.MatchString(k):
			return fault.InvalidField("env", "%q is not a variable name", clip(k, 64))
		case len(v) > maxEnvValue:
			return fault.InvalidField("env", "the value of %s is longer than %d bytes", k, maxEnvValue)
		case strings.ContainsRune(v, 0):
			return fault.InvalidField("env", "the value of %s contains a zero byte", k)
		}
	}
	return nil
}

func validateFiles(files []File) error {
	if len(files) > maxFiles {
		return fault.InvalidField("files", "more than %d files", maxFiles)
	}
	for _, f := range files {
		clean := path.Clean(f.Path)
		switch {
		case f.Path == "" || clean == "." || clean == "/" || strings.HasSuffix(f.Path, "/"):
			return fault.InvalidField("files", "%q is not a file path", clip(f.Path, 128))
		case strings.Contains("/"+f.Path+"/", "/../"):
			return fault.InvalidField("files", "%q leaves the workspace", clip(f.Path, 128))
		case strings.ContainsRune(f.Path, 0) || len(f.Path) > 4096:
			return fault.InvalidField("files", "%q is not a path", clip(f.Path, 128))
		case f.Mode&^0o7777 != 0:
			return fault.InvalidField("files", "%q has mode bits beyond 07777", clip(f.Path, 128))
		}
	}
	return nil
}

func validateCommand(command []string) error {
	if len(command) == 0 || command[0] == "" {
		return fault.InvalidField("command", "is empty")
	}
	if len(command) > maxArgs {
		return fault.InvalidField("command", "more than %d arguments", maxArgs)
	}
	total := 0
	for _, a := range command {
		if strings.ContainsRune(a, 0) {
			return fault.InvalidField("command", "contains a zero byte")
		}
		total += len(a)
	}
	if total > maxArgBytes {
		return fault.InvalidField("command", "longer than %d bytes", maxArgBytes)
	}
	return nil
}

// limitFields ties each limit to its name and to what the driver must support.
func limitFields(l *Limits) []struct {
	name    string
	feature string
	value   *int64
	min     int64
} {
	return []struct {
		name    string
		feature string
		value   *int64
		min     int64
	}{
		{"memory", driver.FeatureMemoryLimit, &l.MemoryBytes, minMemory},
		{"cpu", driver.FeatureCPULimit, &l.CPUMillis, 10},
		{"disk", driver.FeatureDiskLimit, &l.DiskBytes, minDisk},
		{"processes", driver.FeatureProcessLimit, &l.Processes, 16},
	}
}

func validateLimits(l Limits, caps driver.Capabilities) error {
	for _, f := range limitFields(&l) {
		switch v := *f.value; {
		case v == 0:
		case v < 0:
			return fault.InvalidField(f.name, "must not be negative")
		case v < f.min && f.name == "cpu":
			return fault.InvalidField(f.name, "%s is too little; the least is %s", FormatCPU(v), FormatCPU(f.min))
		case v < f.min && f.name == "processes":
			return fault.InvalidField(f.name, "%d is too few; the least is %d", v, f.min)
		case v < f.min:
			return fault.InvalidField(f.name, "%s is too little; the least is %s", FormatBytes(v), FormatBytes(f.min))
		case !caps.Support[f.feature].OK:
			return &fault.Error{Code: fault.Unsupported, Field: f.name, Kind: "sandbox",
				Message: "this server cannot enforce a " + f.feature + ": " + caps.Support[f.feature].Reason}
		}
	}
	return nil
}

// withDefaults fills the limits a request left open, as far as the driver can
// enforce them.
func (l Limits) withDefaults(def Limits, caps driver.Capabilities) Limits {
	from := limitFields(&def)
	for i, f := range limitFields(&l) {
		if *f.value == 0 && caps.Support[f.feature].OK {
			*f.value = *from[i].value
		}
	}
	return l
}
