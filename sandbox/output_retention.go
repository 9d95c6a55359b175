package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// Output is kept for Config.OutputRetention after a command has ended, and of
// all that one sandbox keeps the oldest goes when it is more than
// Config.OutputPerSandbox. The records stay.

// trimEvery is how often Run looks for output that need not be kept.
const trimEvery = 10 * time.Minute

// keptOutput is the folder of one command that has ended.
type keptOutput struct {
	dir   string
	id    string
	bytes int64
	at    time.Time // of its last byte
}

// countOutput adds to what a sandbox keeps, and trims it when that is too much.
func (e *Engine) countOutput(sandboxID string, bytes int64) {
	e.mu.Lock()
	e.kept[sandboxID] += bytes
	over := e.kept[sandboxID] > e.cfg.OutputPerSandbox
	if over {
		e.kept[sandboxID] = 0 // counted anew below
	}
	e.mu.Unlock()
	if over {
		e.background(func(ctx context.Context) { e.trimSandbox(ctx, sandboxID) })
	}
}

// TrimOutput removes output that need not be kept any more. Run does so now and
// then.
func (e *Engine) TrimOutput(ctx context.Context) {
	entries, err := os.ReadDir(e.cfg.OutputDir)
	if err != nil {
		e.cfg.Log.Warn("look for old output", "err", err)
		return
	}
	for _, entry := range entries {
		if ctx.Err() != nil {
			return
		}
		if IsID(entry.Name()) {
			e.trimSandbox(ctx, entry.Name())
		}
	}
}

// trimSandbox removes the old output of one sandbox: what is past its time, and
// the oldest of too much, down to a little less than what may be kept so that
// not every command has to look again.
func (e *Engine) trimSandbox(ctx context.Context, sandboxID string) {
	all, total := e.outputsOf(sandboxID)
	slices.SortFunc(all, func(a, b keptOutput) int { return a.at.Compare(b.at) })
	before := e.cfg.Now().Add(-e.cfg.OutputRetention)
	over := total > e.cfg.OutputPerSandbox
	for _, k := range all {
		if !k.at.Before(before) && (!over || total <= e.cfg.OutputPerSandbox*9/10) {
			break
		}
		if !e.hasEnded(ctx, k.id) {
			continue
		}
		if err := os.RemoveAll(k.dir); err != nil {
			e.cfg.Log.Warn("remove old output", "command", k.id, "err", err)
			continue
		}
		total -= k.bytes
	}
	e.mu.Lock()
	e.kept[sandboxID] = total
	e.mu.Unlock()
	if s, err := e.cfg.Store.Sandbox(ctx, sandboxID); err == nil && !s.Status.Live() {
		_ = os.Remove(filepath.Join(e.cfg.OutputDir, sandboxID)) // only when it is empty
	}
}

// outputsOf lists what is kept of a sandbox.
func (e *Engine) outputsOf(sandboxID string) (all []keptOutput, total int64) {
	folder := filepath.Join(e.cfg.OutputDir, sandboxID)
	entries, _ := os.ReadDir(folder) // none is nothing to trim
	for _, entry := range entries {
		k := keptOutput{dir: filepath.Join(folder, entry.Name()), id: entry.Name()}
		files, _ := os.ReadDir(k.dir)
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				k.bytes += info.Size()
				if info.ModTime().After(k.at) {
					k.at = info.ModTime()
				}
			}
		}
		all, total = append(all, k), total+k.bytes
	}
	return all, total
}

// hasEnded reports whether nothing prints to the output of a command any more.
// What no record knows was never begun.
func (e *Engine) hasEnded(ctx context.Context, id string) bool {
	if e.running(id) != nil {
		return false
	}
	if strings.HasPrefix(id, prefixJob+"_") {
		j, err := e.cfg.Store.Job(ctx, id)
		return err == nil && j.Status.Done() || fault.Is(err, fault.NotFound)
	}
	x, err := e.cfg.Store.Execution(ctx, id)
	return err == nil && x.Status.Done() || fault.Is(err, fault.NotFound)
}
