package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// sampled is the value of a column of usage at a time: that of the last sample
// until then. The parameter is the time.
func sampled(column string) string {
	return "coalesce((SELECT u." + column + " FROM usage u WHERE u.sandbox_id=s.id AND u.at<=? ORDER BY u.at DESC LIMIT 1), 0)"
}

// counters are the columns of usage that only grow, in the order in which
// Stats reads their sums.
var counters = []string{"cpu", "memory_seconds", "net_in", "net_out", "uptime"}

// Stats implements sandbox.UsageStore. All numbers are of one moment.
func (s *Store) Stats(ctx context.Context, owner, org string, start, end time.Time) (sandbox.Stats, error) {
	st := sandbox.Stats{Start: start, End: end, ByStatus: map[sandbox.Status]int{}}
	whose, args := "true", []any{}
	for column, value := range map[string]string{"s.owner": owner, "s.org": org} {
		if value != "" {
			whose += " AND " + column + "=?"
			args = append(args, value)
		}
	}
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return st, s.fail(ctx, "sum usage up", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written

	sums := []string{"count(*)"}
	var params []any
	for _, c := range counters {
		sums = append(sums, "coalesce(sum(max("+sampled(c)+" - "+sampled(c)+", 0)), 0)")
		params = append(params, nanos(end), nanos(start))
	}
	query := "SELECT " + strings.Join(sums, ", ") + " FROM sandboxes s WHERE " + whose + " AND s.created_at<=? AND (s.ended_at=0 OR s.ended_at>=?)"
	params = append(append(params, args...), nanos(end), nanos(start))
	err = tx.QueryRowContext(ctx, query, params...).Scan(&st.Sandboxes, &st.CPU, &st.MemorySecond, &st.NetIn, &st.NetOut, &st.Uptime)
	if err != nil {
		return st, s.fail(ctx, "sum usage up", err)
	}
	for table, n := range map[string]*int{"executions": &st.Executions, "jobs": &st.Jobs} {
		err := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+table+" x JOIN sandboxes s ON s.id=x.sandbox_id WHERE "+whose+
			" AND x.created_at>=? AND x.created_at<=?", append(slices.Clip(args), nanos(start), nanos(end))...).Scan(n)
		if err != nil {
			return st, s.fail(ctx, "count "+table, err)
		}
	}
	return st, s.fail(ctx, "sum usage up", statsNow(ctx, tx, &st, whose, args))
}

// statsNow fills in what is of the present moment.
func statsNow(ctx context.Context, tx *sql.Tx, st *sandbox.Stats, whose string, args []any) error {
	last := func(column string) string {
		return "(SELECT u." + column + " FROM usage u WHERE u.sandbox_id=s.id ORDER BY u.at DESC LIMIT 1)"
	}
	rows, err := tx.QueryContext(ctx, "SELECT s.status, count(*),"+
		" coalesce(sum(CASE WHEN s.status IN ('idle', 'running') THEN "+last("memory_bytes")+" END), 0),"+
		" coalesce(sum(CASE WHEN s.live THEN max("+last("disk_bytes")+", 0) END), 0)"+
		" FROM sandboxes s WHERE "+whose+" AND (s.live OR s.status='failed') GROUP BY s.status", args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var status sandbox.Status
		var n int
		var memory, disk int64
		if err := rows.Scan(&status, &n, &memory, &disk); err != nil {
			return err
		}
		st.ByStatus[status] = n
		st.MemoryBytes += memory
		st.DiskBytes += disk
	}
	return rows.Err()
}

// Held implements sandbox.UsageStore.
func (s *Store) Held(ctx context.Context, owner, org string) (sandbox.Quota, error) {
	var q sandbox.Quota
	where, args := "live", []any{}
	for column, value := range map[string]string{"owner": owner, "org": org} {
		if value != "" {
			where += " AND " + column + "=?"
			args = append(args, value)
		}
	}
	err := s.read.QueryRowContext(ctx, "SELECT count(*),"+
		" coalesce(sum(memory_bytes) FILTER (WHERE status NOT IN ('paused', 'suspended')), 0),"+
		" coalesce(sum(cpu_millis) FILTER (WHERE status NOT IN ('paused', 'suspended')), 0),"+
		" coalesce(sum(disk_bytes), 0) FROM sandboxes WHERE "+where, args...).
		Scan(&q.Sandboxes, &q.MemoryBytes, &q.CPUMillis, &q.DiskBytes)
	return q, s.fail(ctx, "sum up what is held", err)
}

// Due implements sandbox.UsageStore.
func (s *Store) Due(ctx context.Context, driver string, now time.Time, limit int) ([]sandbox.Sandbox, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE driver=? AND id IN ("+
		" SELECT id FROM sandboxes WHERE terminates_at<>0 AND terminates_at<=? AND status='paused'"+
		" UNION ALL"+
		" SELECT id FROM sandboxes WHERE status='idle' AND idle_timeout>0 AND active_at+idle_timeout<=?)"+
		" ORDER BY id LIMIT ?", driver, nanos(now), nanos(now), limit)
	due, err := collect(rows, err, sandboxFields)
	return due, s.fail(ctx, "list what is due", err)
}

// TouchSandbox implements sandbox.UsageStore.
func (s *Store) TouchSandbox(ctx context.Context, id string, at time.Time) error {
	return s.transact(ctx, "touch sandbox", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE sandboxes SET active_at=max(active_at, ?) WHERE id=?", nanos(at), id)
		return err
	})
}

// SavedBytes implements sandbox.UsageStore.
func (s *Store) SavedBytes(ctx context.Context, owner string) (n int64, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT COALESCE(SUM(size_bytes), 0) FROM layers WHERE id IN (
		SELECT layer FROM snapshots WHERE owner=?1
		UNION SELECT b.value FROM snapshots p JOIN layers l ON l.id=p.layer, json_each(l.below) b
			WHERE p.owner=?1 AND p.sandbox_id='' AND l.below NOT IN ('null', '[]')
		UNION SELECT c.layer FROM checkpoints c JOIN sandboxes s ON s.id=c.sandbox_id WHERE s.owner=?1
		UNION SELECT json_extract(layers, '$[0]') FROM sandboxes WHERE owner=?1 AND live AND parent<>'' AND layers NOT IN ('null', '[]'))`,
		owner).Scan(&n)
	return n, s.fail(ctx, "sum up what is saved", err)
}
