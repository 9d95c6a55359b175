package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/keys"
)

// scopeFlags say what a key may be used for.
type scopeFlags struct {
	sandboxes, projects, verbs []string
	noForwarding               bool
}

func (f *scopeFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.sandboxes, "sandbox", nil, "for these sandboxes alone, by id or by name of the principal's own (repeatable)")
	fl.StringSliceVar(&f.projects, "project", nil, "for the sandboxes of these projects alone (repeatable)")
	fl.StringSliceVar(&f.verbs, "verbs", nil, "for these things alone: shell, exec, files, forward, read, create, manage, keys")
	fl.BoolVar(&f.noForwarding, "no-forwarding", false, "not for ports, sockets and the ssh agent")
}

// scope reads the flags.
func (f *scopeFlags) scope() (keys.Scope, error) {
	s, field, err := keys.NewScope(f.sandboxes, f.projects, f.verbs, f.noForwarding)
	if err != nil {
		return keys.Scope{}, flagError(field, err)
	}
	return s, nil
}
