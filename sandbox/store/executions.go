package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// executionColumns are the columns of executions in the order of executionFields.
const executionColumns = "id, sandbox_id, status, command, exit_code, error, timeout, " +
	"stdout_bytes, stderr_bytes, output_truncated, created_at, started_at, ended_at, auto_resumed"

func executionFields(x *sandbox.Execution) []any {
	return []any{
		&x.ID, &x.SandboxID, &x.Status, document{&x.Command}, &x.ExitCode, &x.Error, &x.Timeout,
		&x.StdoutBytes, &x.StderrBytes, &x.OutputTruncated, instant{&x.CreatedAt}, instant{&x.StartedAt}, instant{&x.EndedAt}, &x.AutoResumed,
	}
}

// CreateExecution implements sandbox.Store. NotFound when the sandbox is not
// there; what state it is in is not looked at.
func (s *Store) CreateExecution(ctx context.Context, x sandbox.Execution, events ...sandbox.Event) error {
	return s.transact(ctx, "create execution", func(tx *sql.Tx) error {
		counted, err := tx.ExecContext(ctx, "UPDATE sandboxes SET executions = executions + 1, updated_at = ?,"+
			" status = CASE status WHEN ? THEN ? ELSE status END WHERE id=?",
			nanos(s.now()), string(sandbox.Idle), string(sandbox.Running), x.SandboxID)
		if err != nil {
			return fmt.Errorf("count on sandbox: %w", err)
		}
		if n, err := counted.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			return noSandbox(x.SandboxID)
		}
		fields := executionFields(&x)
		_, err = tx.ExecContext(ctx, "INSERT INTO executions ("+executionColumns+") VALUES ("+marks(len(fields))+")", fields...)
		if taken(err, "executions.id") {
			return fault.Wrap(err, fault.Exists, "an execution %s exists already", x.ID).About("execution")
		}
		if err != nil {
			return err
		}
		return s.appendEvents(ctx, tx, x.SandboxID, events)
	})
}

// UpdateExecution implements sandbox.Store. It calls change once; change must
// not use the store. Neither id can be changed.
func (s *Store) UpdateExecution(ctx context.Context, id string, change func(*sandbox.Execution) ([]sandbox.Event, error)) (sandbox.Execution, error) {
	var x sandbox.Execution
	var refused error // what change said, to be returned as it is
	err := s.transact(ctx, "update execution", func(tx *sql.Tx) error {
		var err error
		if x, err = selectExecution(ctx, tx, id); err != nil {
			return err
		}
		sandboxID, open := x.SandboxID, !x.Status.Done()
		var events []sandbox.Event
		if events, refused = change(&x); refused != nil {
			return refused
		}
		if x.ID != id || x.SandboxID != sandboxID {
			return fmt.Errorf("execution %s of %s was renamed to %s of %s by a change", id, sandboxID, x.ID, x.SandboxID)
		}
		_, err = tx.ExecContext(ctx, "UPDATE executions SET "+assignments(executionColumns)+" WHERE id=?",
			append(executionFields(&x), id)...)
		if err != nil {
			return err
		}
		if open && x.Status.Done() {
			if err := s.settle(ctx, tx, sandboxID); err != nil {
				return err
			}
		}
		return s.appendEvents(ctx, tx, sandboxID, events)
	})
	switch {
	case refused != nil:
		return sandbox.Execution{}, refused
	case err != nil:
		return sandbox.Execution{}, err
	}
	return x, nil
}

// settle moves a running sandbox in which nothing is executed any more back to
// idle.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, sandboxID string) error {
	now := nanos(s.now())
	_, err := tx.ExecContext(ctx, "UPDATE sandboxes SET status=?, updated_at=?, active_at=?"+
		" WHERE id=? AND status=? AND NOT EXISTS (SELECT 1 FROM executions WHERE sandbox_id=sandboxes.id AND open)",
		string(sandbox.Idle), now, now, sandboxID, string(sandbox.Running))
	if err != nil {
		return fmt.Errorf("move sandbox to idle: %w", err)
	}
	return nil
}

// Execution implements sandbox.Store.
func (s *Store) Execution(ctx context.Context, id string) (sandbox.Execution, error) {
	x, err := selectExecution(ctx, s.read, id)
	if err != nil {
		return sandbox.Execution{}, s.fail(ctx, "read execution", err)
	}
	return x, nil
}

// Executions implements sandbox.Store. A sandbox that does not exist has none.
func (s *Store) Executions(ctx context.Context, sandboxID string, limit int) ([]sandbox.Execution, error) {
	list, _, err := s.ExecutionHistory(ctx, sandboxID, limit, 0)
	return list, err
}

// ExecutionHistory implements sandbox.Store. The total and the page are of the
// same moment.
func (s *Store) ExecutionHistory(ctx context.Context, sandboxID string, limit, offset int) ([]sandbox.Execution, int, error) {
	return page(ctx, s, history{table: "executions", columns: executionColumns, sandboxID: sandboxID, limit: limit, offset: offset}, executionFields)
}

// OpenExecutions implements sandbox.Store; the oldest comes first.
func (s *Store) OpenExecutions(ctx context.Context) ([]sandbox.Execution, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+executionColumns+" FROM executions WHERE open ORDER BY created_at, rowid")
	list, err := collect(rows, err, executionFields)
	return list, s.fail(ctx, "list open executions", err)
}

func selectExecution(ctx context.Context, q queryer, id string) (sandbox.Execution, error) {
	var x sandbox.Execution
	err := q.QueryRowContext(ctx, "SELECT "+executionColumns+" FROM executions WHERE id=?", id).Scan(executionFields(&x)...)
	if errors.Is(err, sql.ErrNoRows) {
		return x, fault.New(fault.NotFound, "there is no execution %q", id).About("execution")
	}
	return x, err
}
