package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// usageColumns are the columns of usage in the order of usageFields.
const usageColumns = "sandbox_id, at, cpu, memory_bytes, disk_bytes, processes, net_in, net_out, " +
	"cpu_raw, net_in_raw, net_out_raw, memory_seconds, uptime"

func usageFields(u *sandbox.Usage) []any {
	return []any{
		&u.SandboxID, instant{&u.At}, &u.CPU, &u.MemoryBytes, &u.DiskBytes, &u.Processes, &u.NetIn, &u.NetOut,
		&u.Raw.CPU, &u.Raw.NetIn, &u.Raw.NetOut, &u.MemorySecond, &u.Uptime,
	}
}

// AddUsage implements sandbox.UsageStore. A second sample of the same moment
// takes the place of the first. Limits are not kept.
func (s *Store) AddUsage(ctx context.Context, samples []sandbox.Usage) error {
	if len(samples) == 0 {
		return nil
	}
	return s.transact(ctx, "add usage", func(tx *sql.Tx) error {
		for _, u := range samples {
			fields := usageFields(&u)
			_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO usage ("+usageColumns+") VALUES ("+marks(len(fields))+")", fields...)
			if err != nil {
				return fmt.Errorf("of sandbox %s: %w", u.SandboxID, err)
			}
		}
		return nil
	})
}

// LastUsage implements sandbox.UsageStore.
func (s *Store) LastUsage(ctx context.Context, sandboxID string) (sandbox.Usage, error) {
	var u sandbox.Usage
	err := s.read.QueryRowContext(ctx, "SELECT "+usageColumns+" FROM usage WHERE sandbox_id=? ORDER BY at DESC LIMIT 1", sandboxID).
		Scan(usageFields(&u)...)
	if errors.Is(err, sql.ErrNoRows) {
		return u, fault.New(fault.NotFound, "nothing is known of the use of sandbox %q", sandboxID).About("sandbox")
	}
	return u, s.fail(ctx, "read usage", err)
}

// trimBatch bounds how long trimming keeps other writers waiting.
const trimBatch = 1000

// TrimUsage implements sandbox.UsageStore. What is kept of each sandbox from
// before the time is its last sample then, from which sums go on.
func (s *Store) TrimUsage(ctx context.Context, before time.Time) error {
	return s.dropUsage(ctx, "trim usage", "at < ? AND EXISTS"+
		" (SELECT 1 FROM usage AS later WHERE later.sandbox_id=usage.sandbox_id AND later.at>usage.at AND later.at<?)",
		nanos(before), nanos(before))
}

// ThinUsage implements sandbox.UsageStore.
func (s *Store) ThinUsage(ctx context.Context, from, to time.Time, step time.Duration) error {
	return s.dropUsage(ctx, "thin usage", "at >= ? AND at < ? AND EXISTS"+
		" (SELECT 1 FROM usage AS later WHERE later.sandbox_id=usage.sandbox_id AND later.at>usage.at AND later.at<min((usage.at/?+1)*?, ?))",
		nanos(from), nanos(to), int64(step), int64(step), nanos(to))
}

// dropUsage deletes samples, some at a time. Nobody waits while they are looked
// for.
func (s *Store) dropUsage(ctx context.Context, op, where string, args ...any) error {
	type sample struct {
		sandboxID string
		at        int64
	}
	for {
		rows, err := s.read.QueryContext(ctx, "SELECT sandbox_id, at FROM usage WHERE "+where+" LIMIT ?", append(slices.Clip(args), trimBatch)...)
		drop, err := collect(rows, err, func(d *sample) []any { return []any{&d.sandboxID, &d.at} })
		if err != nil || len(drop) == 0 {
			return s.fail(ctx, op, err)
		}
		err = s.transact(ctx, op, func(tx *sql.Tx) error {
			for _, d := range drop {
				if _, err := tx.ExecContext(ctx, "DELETE FROM usage WHERE sandbox_id=? AND at=?", d.sandboxID, d.at); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(drop) < trimBatch {
			return err
		}
	}
}
