-- Records that version 5 added.
INSERT INTO sessions (id, sandbox_id, name, owner, process_id, command, user, status, recording, exit, reason, created_at, detached_at, ended_at, active_at)
VALUES ('ses_old', 'sbx_old', 'main', 'alice', 'ses_old', '', '', 'detached', '', 'null', '', 1772600767000000089, 1772600768000000000, 0, 1772600768000000000);
