-- A record with the columns that version 4 added.
INSERT INTO usage (sandbox_id, at, cpu, memory_bytes, disk_bytes, processes, net_in, net_out, cpu_raw, net_in_raw, net_out_raw, memory_seconds, uptime)
VALUES ('sbx_old', 1772600767000000090, 6, 6, 100, 2, 8, 9, 1, 2, 3, 4.5, 15000000000);
