package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
)

// versionInfo is what `version` prints with --json.
type versionInfo struct {
	Version  string    `json:"version"`
	Commit   string    `json:"commit,omitempty"`
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	Server   *api.Info `json:"server,omitempty"`
}

func (a *app) versionCommand() *cobra.Command {
	var server, asJSON bool
	cmd := &cobra.Command{
		Use: "version [flags]", Short: "Print the version",
		Example: "  sandgate version\n  sandgate version --server --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			if server {
				c, err := a.connect(cmd.Context())
				if err != nil {
					return err
				}
				defer c.Close()
				info, err := c.Info(cmd.Context())
				if err != nil {
					return err
				}
				v.Server = &info
			}
			if asJSON {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintf(a.Stdout, "sandgate %s (%s, %s)\n", v.Version, v.Platform, v.Go)
			if s := v.Server; s != nil && err == nil {
				_, err = fmt.Fprintf(a.Stdout, "server   %s, engine %s, ssh %s, you are %s (%s)\n",
					clean(s.Version), clean(s.Engine), clean(s.SSH), clean(s.Principal.ID), clean(s.Principal.Role))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&server, "server", false, "ask the server, too")
	jsonFlag(cmd, &asJSON)
	return cmd
}
