package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/layer"
)

// configSSHFlags are the flags of config-ssh.
type configSSHFlags struct {
	file, alias            string
	dryRun, remove, asJSON bool
}

func (a *app) configSSHCommand() *cobra.Command {
	var f configSSHFlags
	cmd := &cobra.Command{
		Use: "config-ssh [flags]", Short: "Let ssh, scp, rsync and editors reach sandboxes by id or name",
		Long: `Write the hosts of this gateway into a file of its own beside the ssh
configuration, with the gateway's host keys, and include it there. After that
"ssh sbx_4k2m7qa3bc5d", or "ssh dev" for your sandbox dev, works like any other
host, in every program that uses OpenSSH (8.0 or newer).

Run it again for the names of new sandboxes; ids always work. Through the
gateway ("ssh gateway config-ssh") the file is printed, for you to save.`,
		Example: `  sandgate config-ssh
  sandgate config-ssh --dry-run
  sandgate config-ssh --remove
  ssh -p 2222 gateway.example config-ssh > ~/.ssh/sandgate.conf   # from any machine`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.configSSH(cmd, f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.alias, "host-alias", "gw", "what to call the gateway itself")
	jsonFlag(cmd, &f.asJSON)
	if a.Local {
		fl.StringVar(&f.file, "file", "", "the ssh configuration (default ~/.ssh/config)")
		fl.BoolVar(&f.dryRun, "dry-run", false, "show what would change, and change nothing")
		fl.BoolVar(&f.remove, "remove", false, "take away everything that was written")
	}
	return cmd
}

func (a *app) configSSH(cmd *cobra.Command, f configSSHFlags) error {
	if !hostAlias.MatchString(f.alias) || strings.HasPrefix(f.alias, "sbx_") {
		return usagef("--host-alias: %q is not a name for a host: use letters, digits, '.', '_' and '-'", f.alias)
	}
	if !a.Local {
		return a.printSSHConfig(cmd.Context(), f)
	}
	at, err := a.sshConfigPaths(f.file)
	if err != nil {
		return err
	}
	var changes []change
	var hosts sshHosts
	if f.remove {
		changes, err = at.planRemoval()
	} else {
		c, cerr := a.connect(cmd.Context())
		if cerr != nil {
			return cerr
		}
		defer c.Close()
		changes, hosts, err = a.planSSHConfig(cmd.Context(), c, at, f.alias)
	}
	if err != nil {
		return err
	}
	diff, err := diffOf(changes)
	if err != nil {
		return err
	}
	if !f.dryRun {
		for _, c := range changes {
			if err := c.apply(); err != nil {
				return at.unwritable(c.path, err)
			}
		}
	}
	return a.reportSSHConfig(f, at, changes, hosts, diff)
}

// printSSHConfig prints the file for a person on another machine, whose ssh
// knows the gateway already.
func (a *app) printSSHConfig(ctx context.Context, f configSSHFlags) error {
	return a.withClientContext(ctx, func(c *api.Client) error {
		info, err := c.Info(ctx)
		if err != nil {
			return err
		}
		g, err := a.gateway(c, info)
		if err != nil {
			return err
		}
		hosts := sshHosts{alias: f.alias, host: g.host, port: g.port}
		if hosts.names, hosts.skipped, err = ownNames(ctx, c, info.Principal.ID, f.alias, nil); err != nil {
			return err
		}
		if f.asJSON {
			return a.printJSON(map[string]any{"config": hosts.text(), "hosts": hosts.all()})
		}
		_, err = fmt.Fprint(a.Stdout, hosts.text())
		return err
	})
}

// withClientContext is withClient without a command.
func (a *app) withClientContext(ctx context.Context, do func(*api.Client) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

// planSSHConfig works out what has to change for ssh to know the gateway and
// the sandboxes.
func (a *app) planSSHConfig(ctx context.Context, c *api.Client, at sshConfigPaths, alias string) ([]change, sshHosts, error) {
	hosts := sshHosts{alias: alias}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, hosts, err
	}
	g, err := a.gateway(c, info)
	if err != nil {
		return nil, hosts, err
	}
	config, err := readConfig(at.config)
	if err != nil {
		return nil, hosts, err
	}
	hosts.host, hosts.port, hosts.keyAlias = g.host, g.port, "sandgate-"+alias
	if g.viaSSH {
		if err := hosts.resolve(ctx, g); err != nil {
			return nil, hosts, err
		}
	}
	theirs := literalHosts(at.withoutInclude(config.before))
	if hosts.names, hosts.skipped, err = ownNames(ctx, c, info.Principal.ID, alias, theirs); err != nil {
		return nil, hosts, err
	}
	if theirs[alias] && !g.viaSSH {
		a.note("%s has a host %q of its own, which the gateway now takes the place of; --host-alias gives it another name", at.config, alias)
	}
	known, err := readConfig(at.known)
	if err != nil {
		return nil, hosts, err
	}
	if g.trusted {
		if known.after, err = knownHostsText(hosts.keyAlias, info.HostKeys); err != nil {
			return nil, hosts, err
		}
	}
	hosts.knownHosts = at.knownValue
	own, err := readConfig(at.own)
	if err != nil {
		return nil, hosts, err
	}
	own.after = []byte(hosts.text())
	changes := []change{known, own}
	if changed := at.withInclude(config.before, config.absent); changed != nil {
		backup, err := readConfig(at.backup)
		if err != nil {
			return nil, hosts, err
		}
		if backup.absent && !config.absent {
			backup.after, backup.mode = config.before, config.mode
			changes = append(changes, backup)
		}
		config.after = changed
		changes = append(changes, config)
	}
	return dropUnchanged(changes), hosts, nil
}

// reportSSHConfig says what was done.
func (a *app) reportSSHConfig(f configSSHFlags, at sshConfigPaths, changes []change, hosts sshHosts, diff string) error {
	if f.asJSON {
		files := []map[string]string{}
		for _, c := range changes {
			files = append(files, map[string]string{"path": c.path, "action": c.action()})
		}
		out := map[string]any{"changed": len(changes) > 0, "files": files, "hosts": hosts.all()}
		if f.dryRun {
			out["diff"] = diff
		}
		return a.printJSON(out)
	}
	for _, s := range hosts.skipped {
		a.note("%s", clean(s))
	}
	switch {
	case f.dryRun && len(changes) > 0:
		_, err := fmt.Fprint(a.Stdout, cleanLines(diff))
		return err
	case len(changes) == 0 && f.remove:
		a.note("%s has nothing of sandgate in it", at.config)
		return nil
	case len(changes) == 0:
		a.note("nothing has to change")
		return nil
	case f.remove:
		a.note("%s is as it was before", at.config)
		return nil
	}
	_, err := fmt.Fprintf(a.Stdout, "%s is included in %s; try: ssh %s, ssh sbx_…%s\n", at.own, at.config, hosts.alias, hosts.example())
	return err
}

// cleanLines makes the lines of a text safe for a terminal.
func cleanLines(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i, l := range lines {
		if body, ok := strings.CutSuffix(l, "\n"); ok {
			lines[i] = clean(strings.TrimSuffix(body, "\r")) + "\n"
		} else {
			lines[i] = clean(l)
		}
	}
	return strings.Join(lines, "")
}

// diffOf is the unified diff of all changes.
func diffOf(changes []change) (string, error) {
	var out strings.Builder
	for _, c := range changes {
		d, err := layer.TextDiff(c.before, c.after, c.path, c.path)
		if err != nil {
			return "", fault.Wrap(err, fault.Invalid, "%s is not a text that can be edited: %v", c.path, err)
		}
		out.WriteString(d)
	}
	return out.String(), nil
}

// sshConfigPaths are the files that config-ssh writes.
type sshConfigPaths struct {
	config, own, known, backup string
	include                    string // the argument of Include
	knownValue                 string // the value of UserKnownHostsFile
}

// sshConfigPaths finds the files: they lie beside the configuration.
func (a *app) sshConfigPaths(file string) (sshConfigPaths, error) {
	home := a.Getenv("HOME")
	if home == "" {
		home = a.Getenv("USERPROFILE")
	}
	if file == "" && home == "" {
		return sshConfigPaths{}, fault.New(fault.Invalid, "HOME is not set; say which file to change with --file")
	}
	folder := filepath.Join(home, ".ssh")
	at := sshConfigPaths{config: filepath.Join(folder, "config"), include: "sandgate.conf", knownValue: "~/.ssh/sandgate_known_hosts"}
	if file != "" {
		path, err := filepath.Abs(file)
		if err != nil {
			return at, fault.Wrap(err, fault.Invalid, "--file %s: %v", file, err)
		}
		at.config = path
	}
	beside := filepath.Dir(at.config)
	at.own = filepath.Join(beside, "sandgate.conf")
	at.known = filepath.Join(beside, "sandgate_known_hosts")
	at.backup = at.config + ".before-sandgate"
	if home == "" || beside != folder {
		at.include, at.knownValue = sshPath(at.own, runtime.GOOS), sshPath(at.known, runtime.GOOS)
	}
	return at, nil
}

// unwritable says which file could not be written and what to do instead.
func (at sshConfigPaths) unwritable(path string, err error) error {
	if path == at.config {
		return fault.Wrap(err, fault.Unavailable, "%s cannot be changed: %v; put this line at its top yourself: Include %s", path, err, at.include)
	}
	return fault.Wrap(err, fault.Unavailable, "%s cannot be written: %v", path, err)
}

// planRemoval works out what undoes everything.
func (at sshConfigPaths) planRemoval() ([]change, error) {
	config, err := readConfig(at.config)
	if err != nil {
		return nil, err
	}
	changes := []change{}
	if !config.absent {
		config.after = at.withoutInclude(config.before)
		if len(config.after) == 0 && at.madeIt(config.before) {
			config.after = nil
		}
		changes = append(changes, config)
	}
	for _, path := range []string{at.own, at.known, at.backup} {
		c, err := readConfig(path)
		if err != nil {
			return nil, err
		}
		// What is not the file of before is somebody's only copy of something.
		if path == at.backup && string(c.before) != string(config.after) {
			continue
		}
		c.after = nil
		changes = append(changes, c)
	}
	return dropUnchanged(changes), nil
}
