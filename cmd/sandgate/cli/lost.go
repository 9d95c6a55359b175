package cli

import "fmt"

// A user name that names no sandbox leads to the command tree, because plain
// `ssh gateway` sends the login name of whoever types it. So a command that was
// meant for a sandbox which is gone, or whose name is mistyped, arrives here.

// shellVerbs are aliases of `delete` that a shell, or a script for one, may
// have been meant to run.
var shellVerbs = map[string]bool{"rm": true, "del": true, "remove": true, "destroy": true, "terminate": true}

// refuseLost refuses such an alias from a session that may have been meant for
// a sandbox. `delete`, and anything after `sandbox`, nobody types to a shell.
func (e *Env) refuseLost(args []string) error {
	if len(args) > 0 && shellVerbs[args[0]] {
		return usagef("there is no sandbox %q to run %q in; to delete a sandbox type: delete", e.LostUser, args[0])
	}
	return nil
}

// lostUser is the clause that an error adds for such a session.
func (a *app) lostUser() string {
	if a.LostUser == "" {
		return ""
	}
	return fmt.Sprintf(", and no sandbox %q", a.LostUser)
}
