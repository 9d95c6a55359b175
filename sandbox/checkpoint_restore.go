package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// RestoreCheckpoint brings the files of a sandbox back. Once its processes are
// being ended it is finished even if the caller gives up.
func (a *Actor) RestoreCheckpoint(ctx context.Context, ref, checkpoint string) (Sandbox, error) {
	e := a.e
	saver, err := e.saver()
	if err != nil {
		return Sandbox{}, err
	}
	s, unlock, err := a.withFiles(ctx, ref, "RestoreCheckpoint")
	if err != nil {
		return Sandbox{}, err
	}
	defer unlock()
	c, err := e.checkpoint(ctx, s.ID, checkpoint)
	if err != nil {
		return Sandbox{}, err
	}
	dirs, err := e.savedDirs([]string{c.Layer})
	if err != nil {
		return Sandbox{}, err
	}
	if err := ctx.Err(); err != nil {
		return Sandbox{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.restoreTime())
	defer cancel()
	why := "the checkpoint " + c.Name + " was restored"
	wasUp := s.Status.Up()
	release := func() {}
	if wasUp {
		if release, err = e.stopForRestore(ctx, &s, why); err != nil {
			return Sandbox{}, err
		}
		defer release()
	}
	rerr := saver.Restore(ctx, s.ID, dirs[0])
	if wasUp {
		// With its old files, when they could not be replaced.
		if _, err := e.putUp(ctx, &s, release); err != nil {
			return Sandbox{}, errors.Join(rerr, e.leaveSuspended(ctx, s.ID, err))
		}
		e.touch(s.ID)
		e.watch(s.ID)
	}
	if rerr != nil {
		return Sandbox{}, rerr
	}
	data := map[string]any{"checkpointId": c.ID, "name": c.Name}
	slept := s.Memory
	s, err = e.update(ctx, s.ID, func(s *Sandbox) ([]Event, error) {
		s.Memory = false
		return []Event{e.event(s.ID, EventCheckpointRestore, a.who.ID, data)}, nil
	})
	if err == nil && slept { // what slept in memory went with it
		e.endExecutions(ctx, s.ID, why, ExecCancelled)
	}
	return s, err
}

// restoreTime bounds a restore, which copies a whole layer.
func (e *Engine) restoreTime() time.Duration { return 10*e.cleanupTime() + e.cfg.StopGrace }

// stopForRestore ends everything in a sandbox that is up, and says why. Nobody
// reaches its guest until release is called.
func (e *Engine) stopForRestore(ctx context.Context, s *Sandbox, why string) (release func(), err error) {
	e.lastSample(ctx, s)
	e.restores.note(s.ID, why)
	if release, err = e.quiet(ctx, s.ID); err != nil {
		return nil, err
	}
	if err := e.cfg.Driver.Stop(ctx, s.ID, e.cfg.StopGrace); err != nil {
		release()
		return nil, err
	}
	e.endExecutions(ctx, s.ID, why, ExecCancelled)
	return release, nil
}

// leaveSuspended records a sandbox that could not be started again: its files
// are there, and the next use tries once more.
func (e *Engine) leaveSuspended(ctx context.Context, id string, cause error) error {
	reason := "it could not be started after a checkpoint was restored: " + fault.From(cause).Error()
	_, err := e.update(ctx, id, func(s *Sandbox) ([]Event, error) {
		return []Event{e.event(id, EventLifecycleSuspended, "system", map[string]any{"reason": reason})}, s.moveTo(Suspended, reason)
	})
	return errors.Join(fault.Wrap(cause, fault.Unavailable, "sandbox %s is suspended: %s", id, reason).About("sandbox"), err)
}

// restores knows which sandboxes had a checkpoint restored while they were up,
// so that whoever had a process in one learns why it is gone. The zero value is
// ready.
type restores struct {
	mu  sync.Mutex
	why map[string]string // by sandbox
}

func (r *restores) note(id, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil {
		r.why = map[string]string{}
	}
	r.why[id] = why
}

func (r *restores) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.why, id)
}

// explain is the error for a process that its guest does not know.
func (r *restores) explain(id string, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why := r.why[id]; why != "" {
		return fault.Wrap(err, fault.State, "it ended: %s", why).About("sandbox")
	}
	return err
}
