package sshgw

import (
	"context"
	"errors"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// The exit statuses of a session whose process gave none; see the package
// comment.
const (
	exitNotStarted = 255
	exitUnknown    = 254
)

// Why the context of a connection or a session ended.
var (
	errGone     = errors.New("the client is gone")
	errStopping = ErrStopping
)

// ErrStopping is the cause of the end of a command's context when the gateway
// stops. What is written within the next moments still reaches the client.
var ErrStopping = errors.New("the gateway is stopping")

// sayError returns the one line that a client reads about err.
func sayError(err error) string {
	if _, said := errors.AsType[*fault.Error](err); !said && errors.Is(err, errStopping) {
		return "sandgate: the gateway is stopping; what runs in the sandbox goes on"
	}
	return "sandgate: " + oneLine(fault.From(err).Error())
}

// sendExit reports how a process ended. It is to be called after all output
// was written and before the channel is closed.
func sendExit(ch gossh.Channel, e guest.Exit) error {
	if e.Signal == "" {
		status := e.Code
		if status < 0 || status > 255 {
			status = exitUnknown
		}
		return sendStatus(ch, status)
	}
	name := e.Signal
	if !isWord(name, isAlnum) {
		return sendStatus(ch, exitUnknown)
	}
	if !signalNames[name] {
		name += "@openssh.com"
	}
	_, err := ch.SendRequest("exit-signal", false, gossh.Marshal(struct {
		Signal  string
		Core    bool
		Message string
		Lang    string
	}{name, e.CoreDumped, "", ""}))
	return err
}

func sendStatus(ch gossh.Channel, status int) error {
	_, err := ch.SendRequest("exit-status", false, gossh.Marshal(struct{ Status uint32 }{uint32(status)}))
	return err
}

// cause returns why ctx ended, in terms of this package.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, errStopping) {
		return errStopping
	}
	return errGone
}
