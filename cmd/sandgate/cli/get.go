package cli

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) getCommand() *cobra.Command {
	var o api.GetOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use: "get <sandbox> [flags]", Aliases: []string{"show", "info"}, Short: "Describe a sandbox",
		Long: `Describe a sandbox, given its id or its name: status, age, limits, what it uses,
what it was made from, and when it ends by itself.`,
		Example: `  sandgate get sbx_4k2m7qa3bc5d
  sandgate get dev --json`,
		Args: exactly("the id or name of a sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			o.Usage = true
			s, err := c.Get(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(s)
			}
			return a.printSandbox(s)
		},
	}
	cmd.Flags().BoolVar(&o.IncludeDeleted, "include-deleted", false, "also when it was deleted")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printSandbox(s api.Sandbox) error {
	pairs := []pair{
		{"id", s.SandboxID}, {"name", s.Name}, {"description", s.Description}, {"status", s.Status}, {"reason", s.StatusReason},
		{"mode", s.Mode}, {"engine", s.Engine},
	}
	if r := s.Runtime; r != nil {
		runtime := r.Name
		if r.Source != "" {
			runtime += " (" + r.Source + ")"
		}
		pairs = append(pairs, pair{"runtime", runtime})
	}
	if p := s.Snapshot; p != nil {
		pairs = append(pairs, pair{"snapshot", withName(p.ID, p.Tag)})
	}
	pairs = append(pairs, pair{"forked from", s.Parent})
	if r := s.Resources; r != nil {
		pairs = append(pairs, pair{"memory", r.Memory}, pair{"cpu", r.CPU}, pair{"disk", r.Disk})
	}
	pairs = append(pairs, pair{"uses", usageLine(s.Usage)}, pair{"network", networkLine(s)})
	if t := s.Timeout; t != nil {
		pairs = append(pairs, pair{"idle timeout", t.Idle}, pair{"execution timeout", t.Execution}, pair{"paused timeout", t.Paused})
	}
	pairs = append(pairs, pair{"executions", strconv.Itoa(s.Executions)})
	if s.ExitCode != nil {
		pairs = append(pairs, pair{"exit code", strconv.Itoa(*s.ExitCode)})
	}
	pairs = append(pairs, pair{"created", a.moment(s.CreatedAt)})
	if !s.PausedAt.IsZero() {
		how := ", without what ran in it"
		if s.MemoryKept {
			how = ", with what runs in it"
		}
		pairs = append(pairs, pair{"paused", a.moment(s.PausedAt) + how})
	}
	if !s.TerminatesAt.IsZero() {
		pairs = append(pairs, pair{"terminates", a.moment(s.TerminatesAt) + ", when it was " + s.TerminatesWhy})
	}
	if !s.EndedAt.IsZero() {
		pairs = append(pairs, pair{"ended", a.moment(s.EndedAt)})
	}
	if s.User != nil {
		pairs = append(pairs, pair{"owner", s.User.ID})
	}
	if s.Project != nil {
		pairs = append(pairs, pair{"project", s.Project.ID})
	}
	pairs = append(pairs, pair{"org", s.Org.ID})
	if s.Command != nil {
		pairs = append(pairs, pair{"command", strings.Join(s.Command.Exec, " ")})
	}
	for _, k := range slices.Sorted(maps.Keys(s.Metadata)) {
		pairs = append(pairs, pair{"metadata " + clean(k), string(s.Metadata[k])})
	}
	return describe(a.Stdout, pairs, func(name, value string) string {
		if name == "status" {
			return a.statusStyle(value)
		}
		return value
	})
}

// withName is an id and, in parentheses, what people call it.
func withName(id, name string) string {
	if name == "" {
		return id
	}
	return id + " (" + name + ")"
}

// usageLine says what a sandbox uses now.
func usageLine(u *api.Usage) string {
	if u == nil {
		return ""
	}
	line := size(u.MemoryBytes) + " memory"
	if u.DiskBytes >= 0 {
		line += ", " + size(u.DiskBytes) + " disk"
	}
	return line + ", " + strconv.FormatInt(u.Processes, 10) + " processes, " +
		sandbox.FormatDuration(time.Duration(u.CPUTimeMs)*time.Millisecond) + " CPU so far"
}

// networkLine says what a sandbox may reach.
func networkLine(s api.Sandbox) string {
	n := s.Network
	switch {
	case n == nil || !n.Enabled:
		return "none"
	case n.Allow == nil:
		return "every public address"
	case len(n.Allow) == 0:
		return "nothing is allowed"
	}
	return strings.Join(n.Allow, ", ")
}

// moment is a time, and how long ago that was.
func (a *app) moment(t time.Time) string {
	return t.UTC().Format(time.RFC3339) + " (" + a.age(t) + ")"
}
