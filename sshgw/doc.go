// Package sshgw is the SSH door: it lets registered keys in, finds out where
// they want to go, and carries shells, commands and forwarded connections to
// the guest of a sandbox, or command lines to the sandgate command tree.
//
// # Who is it
//
// Public keys only. The identity is looked up when a key is offered, proven by
// the signature, and travels in Permissions.Extensions of the connection and
// nowhere else: what a client merely offered never becomes who it is.
// Everything after that goes through sandbox.Operations bound to the
// principal, so authorization is not decided here. A connection may outlive
// the key that opened it; so each channel asks again whether the key is good
// (Config.Recheck), and the first that is refused ends the connection.
//
// # Where to
//
// The SSH user name says what the connection is for, once for its whole life:
//
//   - "sbx_…" is a sandbox id, always, also in capitals. If there is no such
//     sandbox, the answer is an error.
//   - Any other name that could be a sandbox's name is looked up among the
//     principal's own sandboxes. If one has the name, it is that sandbox. Names
//     of others mean nothing, to admins too, who use ids: else whoever names a
//     sandbox would decide where an admin's commands run.
//   - Everything else is the control account: "ssh gw" sends the local login
//     name, which names no sandbox, so it reaches the command tree without any
//     configuration. The price: a person whose login name is also the name of
//     one of their sandboxes reaches the sandbox; "ssh sandgate@gw", a name that
//     no sandbox can have, is the way round. And a shell command for a sandbox
//     that is gone reaches the command tree: CommandIO.Fallback tells.
//   - "ref+session" asks for a named session of a sandbox, "ref+~user" for
//     another user inside it, and "ref+root" for its root; both parts may come,
//     in either order. None of them falls back to the control account, nor does
//     anything else with a plus in it.
//
// # What ends where
//
// Nothing is run, dialled, listened on or read on the gateway's own host. Local
// forwards are dialled inside the sandbox, remote ones and ssh agents listen
// there, sftp is the guest's; everything that would have to end on the gateway
// is refused with the reason.
//
// A jump (ssh -J gateway sbx_…) is a direct-tcpip channel of the control account
// to port 22 of a sandbox. This same server answers it on the channel, with its
// own host keys and a second authentication, which must be of the same
// principal. The sandbox is fixed then; there is no second jump.
//
// # Exit statuses
//
// A command's own status or signal is passed on as it is. When there is none,
// one line on standard error says why, and the status is 255 if nothing was
// started (no such sandbox, not allowed, a limit, no answer; the same status
// that ssh itself uses for "could not"), and 254 if something was started and
// its end is not known (the connection to the sandbox was lost, the gateway is
// stopping). It is never 0.
//
// # Sessions
//
// A shell on a terminal, and whatever runs on one under a session's name, is a
// session of the Engine: it outlives its client, and others may share it. What
// the client wants of it comes in environment variables (SANDGATE_SESSION,
// SANDGATE_RECORD), which are not passed on. A client that was detached reads
// how to come back, and its status is 0. The end of a client's input is passed on
// to a session that this client began, and is the end of the client's own part in
// one that it found.
//
// What a client is told goes to standard error until the session is drawn, and
// is the title of its terminal from then on.
//
// # A client that vanishes
//
// Its sessions are detached. Its other processes are hung up: SIGHUP, then
// SIGKILL after a grace period to what is left of the process group; what called
// setsid lives on. When it is the gateway that goes away, sessions are left at
// once, and processes are only detached and go on.
package sshgw
