package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

func (a *app) recordingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "recording", Aliases: []string{"recordings", "rec"}, Short: "Play what was recorded of sessions",
		Long: `Play what was recorded of sessions. A recording is kept when its sandbox is gone;
who could see the sandbox can see it.`,
		Example: `  sandgate recording list dev
  sandgate recording play rec_4k2m7qa3bc5d --speed 2 --idle-limit 2s
  sandgate recording export rec_4k2m7qa3bc5d -o demo.cast`,
	}
	a.group(cmd)
	cmd.AddCommand(a.recordingListCommand(), a.recordingGetCommand(), a.recordingPlayCommand(), a.recordingExportCommand(), a.recordingDeleteCommand())
	return cmd
}

// argRecording is the argument of commands about one recording.
const argRecording = "the id of a recording; see: sandgate recording list"

func (a *app) recordingListCommand() *cobra.Command {
	var limit, offset int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [sandbox] [flags]", Aliases: []string{"ls"}, Short: "List recordings, newest first",
		Long:    "List the recordings of a sandbox, or of all sandboxes you may see; one that has ended goes by its id.",
		Example: "  sandgate recording list\n  sandgate recording list dev --limit 10",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exactly(argSandbox)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			page := pageFlags{limit: limit, offset: offset}
			if err := page.check(); err != nil {
				return err
			}
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				list, err := c.Recordings(ctx, strings.Join(args, ""), limit, offset)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(list)
				}
				if list.Total == 0 {
					a.note("no recordings; docs/sessions.md says how sessions are recorded")
					return nil
				}
				t := table{header: []string{"ID", "SANDBOX", "SESSION", "BY", "MADE", "LENGTH", "SIZE", "STATUS"}, style: a.statusColumn(7)}
				for _, r := range list.Recordings {
					t.add(r.RecordingID, r.SandboxID, r.Session, r.Owner, a.age(r.CreatedAt), recordingLength(r), size(r.Bytes), recordingStatus(r))
				}
				if err := t.write(a.Stdout); err != nil {
					return err
				}
				a.noteMore(offset, len(list.Recordings), list.Total)
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "most results, up to 100")
	cmd.Flags().IntVar(&offset, "offset", 0, "results to skip")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func recordingLength(r api.Recording) string {
	return sandbox.FormatDuration((time.Duration(r.DurationMs) * time.Millisecond).Truncate(time.Second))
}

// recordingStatus says whether a recording is all of its session.
func recordingStatus(r api.Recording) string {
	switch {
	case r.Complete:
		return "complete"
	case r.EndedAt.IsZero():
		return "being made"
	}
	return "cut short"
}

func (a *app) recordingGetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "get <recording> [flags]", Aliases: []string{"show", "info"}, Short: "Describe a recording",
		Example: "  sandgate recording get rec_4k2m7qa3bc5d --json | jq .durationMs",
		Args:    exactly(argRecording),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				r, err := c.Recording(ctx, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(r)
				}
				input := "no"
				if r.Input {
					input = "yes: what was typed is in it, passwords too"
				}
				pairs := []pair{
					{"id", r.RecordingID}, {"sandbox", r.SandboxID}, {"session", r.Session + " (" + r.SessionID + ")"}, {"started by", r.Owner},
					{"command", sessionCommandText(r.Command)}, {"status", recordingStatus(r)}, {"input", input},
					{"length", recordingLength(r)}, {"size", size(r.Bytes)}, {"created", a.moment(r.CreatedAt)},
				}
				if !r.EndedAt.IsZero() {
					pairs = append(pairs, pair{"ended", a.moment(r.EndedAt)})
				}
				return describe(a.Stdout, pairs, a.statusPair)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) recordingExportCommand() *cobra.Command {
	var format, file string
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use: "export <recording> [flags]", Short: "Write a recording for other programs",
		Long: `Write a recording as asciicast v2, which asciinema and its players read,
asciicast v3, or text. Text is for reading: what was overwritten on a line is not
in it.`,
		Example: `  sandgate recording export rec_4k2m7qa3bc5d -o demo.cast && asciinema play demo.cast
  sandgate recording export rec_4k2m7qa3bc5d --format text | less`,
		Args: exactly(argRecording),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				err := a.writeOutput(file, 0o600, func(w io.Writer) error {
					return c.ReadRecording(ctx, args[0], format, follow, w)
				})
				if err != nil || !asJSON || file == "-" {
					return err
				}
				return a.printJSON(map[string]any{"recordingId": args[0], "format": format, "file": file})
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&format, "format", string(sandbox.AsciicastV2), "asciicast-v2, asciicast-v3 or text")
	fl.StringVarP(&file, "output", "o", "-", "file to write; - is standard output")
	fl.BoolVarP(&follow, "follow", "f", false, "go on until one that is being made has ended")
	fl.BoolVar(&asJSON, "json", false, "say what was written to a file as JSON")
	return cmd
}

func (a *app) recordingDeleteCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "delete <recording>... [flags]", Aliases: []string{"rm", "del", "remove"}, Short: "Delete a recording (admins)",
		Example: "  sandgate recording delete rec_4k2m7qa3bc5d",
		Args:    atLeast(argRecording),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *api.Client) error {
				return a.deleteEach(args, asJSON, func(id string) error { return c.DeleteRecording(ctx, id) })
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
