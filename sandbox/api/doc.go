// Package api is Sandgate's HTTP API: the handler that serves it and the
// client that speaks it.
//
// # Shapes
//
// The endpoints below /sandbox have the paths, the JSON and the error codes of
// the client that Agentuity publishes (npm @agentuity/core), so that programs
// written for it work unchanged; what is ours alone is below /v1. Every answer
// is an envelope, {"success":true,"data":…} or
// {"success":false,"message":…,"code":…}, except for byte streams.
//
//	POST   /sandbox                            create; with a oneshot command, run it
//	GET    /sandbox                            list, filtered, sorted, paged
//	GET    /sandbox/{id}                       one; waitForStatus, waitMs, includeDeleted
//	DELETE /sandbox/{id}                       destroy
//	GET    /sandbox/status/{id}                status and exit code; waitForStatus, waitMs
//	POST   /sandbox/{id}/execute               start a command
//	GET    /sandbox/execution/{id}             one execution; wait
//	GET    /sandbox/sandboxes/{id}/executions  executions of a sandbox, newest first
//	GET    /sandbox/sandboxes/{id}/events      events of a sandbox
//	GET    /sandbox/runtimes                   runtimes of this server
//	POST   /sandbox/{id}/pause, /resume        stop it with its files; go on
//	PATCH  /sandbox/env/{id}                   set and delete variables
//	PATCH  /v1/sandboxes/{id}                  limits, timeouts, name, what may be reached
//	POST   /v1/sandboxes/{id}/fork             a second one with the files of the first
//	GET    /v1/sandboxes/{id}/usage            what it uses
//	GET    /cli/sandbox[/{id}]                 list and one, in the short form of the published command line
//	GET    /v1/stats                           what all of them used; start, end, orgId
//	GET    /v1/events                          events of all; type, since, until, after, before
//	GET    /v1/events/follow                   events as they happen, a line of JSON each; after
//	GET    /v1/sandboxes/{id}/events/follow    those of one
//	POST   /sandbox/sandboxes/{id}/jobs        start a job
//	GET    /sandbox/sandboxes/{id}/jobs        jobs of a sandbox, newest first
//	GET    /sandbox/sandboxes/{id}/jobs/{job}  one job; wait
//	DELETE /sandbox/sandboxes/{id}/jobs/{job}  stop it; force
//	POST   /fs/{id}                            write files
//	GET    /fs/{id}                            read a file; path, offset, length
//	GET    /fs/list/{id}                       list a directory; path, recursive, limit
//	POST   /fs/mkdir/{id}, /fs/rm, /fs/rmdir   make and remove
//	GET    /fs/download/{id}                   an archive of a directory; path, format
//	POST   /fs/upload/{id}                     unpack an archive; path, format
//	PUT    /v1/sandboxes/{id}/file             write a file of any size; path, mode, strict, append
//	GET    /v1/sandboxes/{id}/stat             describe a file; path
//	POST   /v1/sandboxes/{id}/rename, /chmod   move a file; change its mode
//	POST   /sandbox/{id}/snapshot              keep its files as a snapshot
//	GET    /sandbox/snapshots                  snapshots; sandboxId, tag, sort, direction, limit, offset
//	GET    /sandbox/snapshots/public[/{snp}]   those everybody may use
//	GET    /sandbox/snapshots/lineage          what one was made from; snapshot, or name and tag
//	GET    /sandbox/snapshots/{snp}            one; PATCH moves its tag, DELETE (cascade) deletes it
//	GET    /v1/snapshots/{snp}/files           what its layer holds
//	GET    /v1/snapshots/{snp}/archive         export it
//	POST   /v1/snapshots/import                make one of an export
//	GET    /v1/diff                            compare two points; from, to, path
//	POST   /sandbox/{id}/checkpoint            keep its files to go back to
//	GET    /sandbox/checkpoints/{id}           checkpoints of a sandbox
//	POST   /sandbox/{id}/checkpoint/{ckpt}/restore
//	DELETE /sandbox/{id}/checkpoint/{ckpt}
//	GET    /v1/streams/{id}/{stream}           stdout or stderr of an execution or a job; follow, timestamps, tail
//	POST   /v1/streams/{execution}/stdin       feeds stdin, closes it at the end (PUT too)
//	DELETE /v1/executions/{id}                 cancel an execution
//	GET    /v1/keys                            public keys
//	POST   /v1/keys                            register one
//	DELETE /v1/keys/{fingerprint}              remove one
//	GET    /v1/api-keys                        API keys
//	POST   /v1/api-keys                        make one; the answer has its secret, once
//	DELETE /v1/api-keys/{id}                   revoke one
//	GET    /v1/info                            version, ssh address and host keys, who you are
//	GET    /health                             {"status":"ok"}; needs no key
//
// Every {id} of a sandbox may be its name, every {snp} the tag of one's own
// snapshot, every {ckpt} the name of a checkpoint.
//
// # Doors
//
// One handler serves a unix socket, TCP, an SSH channel ([ServeConn]) and
// callers in the same process ([InProcess]). Who asks is decided per request:
// by the principal that an in-process door put in the context, by a signed
// stream URL, or else by Config.Principal.
//
// # Errors
//
// Failures are fault.Error values on both sides: the handler turns code and
// kind into an HTTP status and a code such as SANDBOX_NOT_FOUND, and [Client]
// turns them back. Causes stay in the server's log.
package api
