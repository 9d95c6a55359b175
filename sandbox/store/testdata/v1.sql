-- Records as version 1 wrote them.
INSERT INTO sandboxes (id, name, description, mode, status, status_reason, owner, project, org, driver,
  runtime_id, runtime_name, runtime_icon_url, runtime_brand_color, runtime_tags, runtime_source, runtime_digest,
  memory_bytes, cpu_millis, disk_bytes, processes, env, metadata, idle_timeout, execution_timeout, paused_timeout,
  command, executions, exit_code, guest, created_at, updated_at, ended_at, active_at)
VALUES ('sbx_old', 'web', 'd', 'interactive', 'running', '', 'alice', 'p', 'o', 'gvisor',
  'srt_1', 'base:latest', '', '', '["debian"]', 'this host', '',
  1073741824, 500, 0, 100, '{"A":"b"}', '{"k":[1]}', 600000000000, 0, 0,
  'null', 1, NULL, 'abc', 1772600767000000089, 1772600768000000000, 0, 0);
INSERT INTO executions (id, sandbox_id, status, command, exit_code, error, timeout, stdout_bytes, stderr_bytes,
  output_truncated, created_at, started_at, ended_at)
VALUES ('exec_old', 'sbx_old', 'running', '["sleep","9"]', NULL, '', 0, 1, 2, 0, 1772600768000000000, 1772600768000000000, 0);
INSERT INTO events (id, sandbox_id, seq, type, principal, data, at)
VALUES ('evt_1', 'sbx_old', 1, 'create', 'alice', '{"n":1}', 1772600767000000089),
       ('evt_2', 'sbx_old', 2, 'execution:started', 'alice', 'null', 1772600768000000000);
