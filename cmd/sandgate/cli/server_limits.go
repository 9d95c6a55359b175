package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sshgw"
)

// sshLimit is one limit of the gateway that --ssh-limit sets.
type sshLimit struct {
	name string
	set  func(l *sshgw.Limits, value string) error
}

// sshLimits are all of them, in the order of docs/ssh.md. Their defaults are
// those of sshgw.Limits.
func sshLimits() []sshLimit {
	return []sshLimit{
		{"handshake", lasting(func(l *sshgw.Limits) *time.Duration { return &l.Handshake }, time.Second, 10*time.Minute)},
		{"half-open", counting(func(l *sshgw.Limits) *int { return &l.HalfOpen }, 1, 100000)},
		{"half-open-per-source", counting(func(l *sshgw.Limits) *int { return &l.HalfOpenPerSource }, 1, 100000)},
		{"burst", counting(func(l *sshgw.Limits) *int { return &l.Burst }, 1, 100000)},
		{"rate", countingInto(func(l *sshgw.Limits, n int) { l.Rate = float64(n) }, 1, 100000)},
		{"penalty", orOff(lasting(func(l *sshgw.Limits) *time.Duration { return &l.PenaltyMax }, time.Second, time.Hour), func(l *sshgw.Limits) { l.PenaltyMax = -1 })},
		{"loopback", switching(func(l *sshgw.Limits) *bool { return &l.LimitLoopback })},
		{"auth-tries", counting(func(l *sshgw.Limits) *int { return &l.AuthTries }, 1, 100)},
		{"connections", counting(func(l *sshgw.Limits) *int { return &l.ConnectionsPerPrincipal }, 1, 100000)},
		{"sessions", counting(func(l *sshgw.Limits) *int { return &l.SessionsPerPrincipal }, 1, 100000)},
		{"forwards", counting(func(l *sshgw.Limits) *int { return &l.ForwardsPerPrincipal }, 1, 1000000)},
		{"sessions-per-connection", counting(func(l *sshgw.Limits) *int { return &l.SessionsPerConnection }, 1, 10000)},
		{"forwards-per-connection", counting(func(l *sshgw.Limits) *int { return &l.ForwardsPerConnection }, 1, 10000)},
		{"bytes", sizing(func(l *sshgw.Limits) *int64 { return &l.Bytes })},
		{"bytes-per-connection", sizing(func(l *sshgw.Limits) *int64 { return &l.BytesPerConnection })},
		{"keepalive", lasting(func(l *sshgw.Limits) *time.Duration { return &l.Keepalive }, time.Second, time.Hour)},
		{"keepalive-misses", counting(func(l *sshgw.Limits) *int { return &l.KeepaliveMisses }, 1, 1000)},
		{"session-idle", orOff(lasting(func(l *sshgw.Limits) *time.Duration { return &l.SessionIdle }, time.Second, 1000*time.Hour), func(l *sshgw.Limits) { l.SessionIdle = 0 })},
		{"forward-idle", orOff(lasting(func(l *sshgw.Limits) *time.Duration { return &l.ForwardIdle }, time.Second, 1000*time.Hour), func(l *sshgw.Limits) { l.ForwardIdle = 0 })},
		{"unused", orOff(lasting(func(l *sshgw.Limits) *time.Duration { return &l.Unused }, time.Second, 1000*time.Hour), func(l *sshgw.Limits) { l.Unused = 0 })},
		{"drain", lasting(func(l *sshgw.Limits) *time.Duration { return &l.Drain }, time.Millisecond, time.Hour)},
	}
}

// parseSSHLimits reads what --ssh-limit says.
func parseSSHLimits(items []string) (l sshgw.Limits, err error) {
	all := sshLimits()
	for _, item := range items {
		name, value, ok := strings.Cut(item, "=")
		i := slices.IndexFunc(all, func(x sshLimit) bool { return x.name == name })
		switch {
		case !ok || i < 0:
			names := make([]string, len(all))
			for i, x := range all {
				names[i] = x.name
			}
			return l, fault.InvalidField("--ssh-limit", "%q is not NAME=VALUE with one of the names %s", item, strings.Join(names, ", "))
		case all[i].set(&l, value) != nil:
			return l, fault.InvalidField("--ssh-limit", "%s: %v", name, all[i].set(&l, value))
		}
	}
	if l.BytesPerConnection > 0 && l.Bytes > 0 && l.BytesPerConnection > l.Bytes {
		return l, fault.InvalidField("--ssh-limit", "bytes-per-connection is more than bytes, which is for all connections")
	}
	return l, nil
}

func lasting(field func(*sshgw.Limits) *time.Duration, least, most time.Duration) func(*sshgw.Limits, string) error {
	return func(l *sshgw.Limits, value string) error {
		d, err := sandbox.ParseDuration(value)
		if err != nil {
			return err
		}
		if d < least || d > most {
			return fmt.Errorf("%q is not between %s and %s", value, sandbox.FormatDuration(least), sandbox.FormatDuration(most))
		}
		*field(l) = d
		return nil
	}
}

func counting(field func(*sshgw.Limits) *int, least, most int) func(*sshgw.Limits, string) error {
	return countingInto(func(l *sshgw.Limits, n int) { *field(l) = n }, least, most)
}

func countingInto(set func(*sshgw.Limits, int), least, most int) func(*sshgw.Limits, string) error {
	return func(l *sshgw.Limits, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a number from %d to %d", value, least, most)
		}
		set(l, n)
		return nil
	}
}

func sizing(field func(*sshgw.Limits) *int64) func(*sshgw.Limits, string) error {
	return func(l *sshgw.Limits, value string) error {
		n, err := sandbox.ParseBytes(value)
		if err != nil {
			return err
		}
		if n < 4<<20 {
			return errors.New("must be at least 4Mi: the data that one channel may have under way is 2Mi")
		}
		*field(l) = n
		return nil
	}
}

func switching(field func(*sshgw.Limits) *bool) func(*sshgw.Limits, string) error {
	return func(l *sshgw.Limits, value string) error {
		switch value {
		case "on":
			*field(l) = true
		case "off":
			*field(l) = false
		default:
			return fmt.Errorf("%q is neither on nor off", value)
		}
		return nil
	}
}

// orOff lets a limit be switched off.
func orOff(set func(*sshgw.Limits, string) error, off func(*sshgw.Limits)) func(*sshgw.Limits, string) error {
	return func(l *sshgw.Limits, value string) error {
		if value == "off" {
			off(l)
			return nil
		}
		if err := set(l, value); err != nil {
			return fmt.Errorf("%w, or off", err)
		}
		return nil
	}
}
