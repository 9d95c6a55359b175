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
//	GET    /v1/streams/{execution}/{stream}    stdout or stderr, until the execution ends
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
// Every {id} of a sandbox may be its name.
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
