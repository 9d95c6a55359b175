-- Records that version 6 added.
INSERT INTO recordings (id, sandbox_id, session_id, session, owner, command, input, bytes, duration, complete, created_at, ended_at)
VALUES ('rec_old', 'sbx_old', 'ses_old', 'main', 'alice', '', 0, 1234, 5000000000, 1, 1772600767000000089, 1772600772000000000);
