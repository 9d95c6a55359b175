-- Records that version 3 added to those of version 2.
INSERT INTO layers (id, driver, below, runtime_digest, size_bytes, files, digest, created_at)
VALUES ('layer_old', 'gvisor', '[]', 'sha256:aa', 10, 2, '', 1772600767000000089);
INSERT INTO snapshots (id, name, tag, description, public, owner, project, org, sandbox_id, parent, layer, driver,
  runtime_id, runtime_name, runtime_icon_url, runtime_brand_color, runtime_tags, runtime_source, runtime_digest,
  metadata, size_bytes, files, created_at)
VALUES ('snp_old', 'tools', 'latest', 'd', 1, 'alice', 'p', 'o', 'sbx_old', '', 'layer_old', 'gvisor',
  'srt_1', 'base:latest', '', '', '["debian"]', 'this host', 'sha256:aa', '{"k":[1]}', 10, 2, 1772600767000000089);
INSERT INTO checkpoints (id, sandbox_id, name, layer, size_bytes, files, created_at)
VALUES ('ckpt_old', 'sbx_old', 'before', 'layer_old', 10, 2, 1772600767000000089);
INSERT INTO jobs (id, sandbox_id, status, command, exit_code, error, stdout_bytes, stderr_bytes, output_truncated, created_at, started_at, ended_at)
VALUES ('job_old', 'sbx_old', 'running', '["sleep","9"]', NULL, '', 1, 2, 0, 1772600767000000089, 1772600767000000089, 0);
INSERT INTO usage (sandbox_id, at, cpu, memory_bytes, disk_bytes, processes, net_in, net_out)
VALUES ('sbx_old', 1772600767000000089, 5, 6, -1, 2, 7, 8);
