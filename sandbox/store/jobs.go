package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// jobColumns are the columns of jobs in the order of jobFields.
const jobColumns = "id, sandbox_id, status, command, exit_code, error, " +
	"stdout_bytes, stderr_bytes, output_truncated, created_at, started_at, ended_at"

func jobFields(j *sandbox.Job) []any {
	return []any{
		&j.ID, &j.SandboxID, &j.Status, document{&j.Command}, &j.ExitCode, &j.Error,
		&j.StdoutBytes, &j.StderrBytes, &j.OutputTruncated, instant{&j.CreatedAt}, instant{&j.StartedAt}, instant{&j.EndedAt},
	}
}

// CreateJob implements sandbox.JobStore. NotFound when the sandbox is not
// there; what state it is in is not looked at.
func (s *Store) CreateJob(ctx context.Context, j sandbox.Job, events ...sandbox.Event) error {
	return s.transact(ctx, "create job", func(tx *sql.Tx) error {
		if _, err := selectSandbox(ctx, tx, j.SandboxID); err != nil {
			return err
		}
		fields := jobFields(&j)
		_, err := tx.ExecContext(ctx, "INSERT INTO jobs ("+jobColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if taken(err, "jobs.id") {
			return fault.Wrap(err, fault.Exists, "a job %s exists already", j.ID).About("job")
		}
		if err != nil {
			return err
		}
		return s.appendEvents(ctx, tx, j.SandboxID, events)
	})
}

// UpdateJob implements sandbox.JobStore. It calls change once; change must not
// use the store. Neither id can be changed. When a job has ended by it, the
// activity of its sandbox is noted, as with an execution.
func (s *Store) UpdateJob(ctx context.Context, id string, change func(*sandbox.Job) ([]sandbox.Event, error)) (sandbox.Job, error) {
	var j sandbox.Job
	var refused error // what change said, to be returned as it is
	err := s.transact(ctx, "update job", func(tx *sql.Tx) error {
		var err error
		if j, err = selectJob(ctx, tx, id); err != nil {
			return err
		}
		sandboxID, open := j.SandboxID, !j.Status.Done()
		var events []sandbox.Event
		if events, refused = change(&j); refused != nil {
			return refused
		}
		if j.ID != id || j.SandboxID != sandboxID {
			return fmt.Errorf("job %s of %s was renamed to %s of %s by a change", id, sandboxID, j.ID, j.SandboxID)
		}
		_, err = tx.ExecContext(ctx, "UPDATE jobs SET "+assignments(jobColumns)+" WHERE id=?", append(jobFields(&j), id)...)
		if err != nil {
			return err
		}
		if open && j.Status.Done() {
			if _, err := tx.ExecContext(ctx, "UPDATE sandboxes SET active_at=max(active_at, ?) WHERE id=?", nanos(s.now()), sandboxID); err != nil {
				return fmt.Errorf("note the activity: %w", err)
			}
		}
		return s.appendEvents(ctx, tx, sandboxID, events)
	})
	switch {
	case refused != nil:
		return sandbox.Job{}, refused
	case err != nil:
		return sandbox.Job{}, err
	}
	return j, nil
}

// Job implements sandbox.JobStore.
func (s *Store) Job(ctx context.Context, id string) (sandbox.Job, error) {
	j, err := selectJob(ctx, s.read, id)
	if err != nil {
		return sandbox.Job{}, s.fail(ctx, "read job", err)
	}
	return j, nil
}

// Jobs implements sandbox.JobStore. The total and the page are of the same
// moment. A sandbox that does not exist has none.
func (s *Store) Jobs(ctx context.Context, sandboxID string, limit, offset int) ([]sandbox.Job, int, error) {
	return page(ctx, s, history{table: "jobs", columns: jobColumns, sandboxID: sandboxID, limit: limit, offset: offset}, jobFields)
}

// OpenJobs implements sandbox.JobStore; the oldest comes first.
func (s *Store) OpenJobs(ctx context.Context, sandboxID string) ([]sandbox.Job, error) {
	where, args := "open", []any{}
	if sandboxID != "" {
		where, args = "open AND sandbox_id=?", []any{sandboxID}
	}
	rows, err := s.read.QueryContext(ctx, "SELECT "+jobColumns+" FROM jobs WHERE "+where+" ORDER BY created_at, rowid", args...)
	list, err := collect(rows, err, jobFields)
	return list, s.fail(ctx, "list open jobs", err)
}

func selectJob(ctx context.Context, q queryer, id string) (sandbox.Job, error) {
	var j sandbox.Job
	err := q.QueryRowContext(ctx, "SELECT "+jobColumns+" FROM jobs WHERE id=?", id).Scan(jobFields(&j)...)
	if errors.Is(err, sql.ErrNoRows) {
		return j, fault.New(fault.NotFound, "there is no job %q", id).About("job")
	}
	return j, err
}
