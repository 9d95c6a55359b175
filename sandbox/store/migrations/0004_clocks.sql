-- Counters of use that only grow, and what is due when.

-- What the driver and the network themselves had counted at the sample; they
-- begin at zero whenever a sandbox starts.
ALTER TABLE usage ADD COLUMN cpu_raw        INTEGER NOT NULL DEFAULT 0; -- nanoseconds
ALTER TABLE usage ADD COLUMN net_in_raw     INTEGER NOT NULL DEFAULT 0; -- bytes
ALTER TABLE usage ADD COLUMN net_out_raw    INTEGER NOT NULL DEFAULT 0; -- bytes
-- These count from the creation of the sandbox.
ALTER TABLE usage ADD COLUMN memory_seconds REAL    NOT NULL DEFAULT 0; -- bytes times seconds
ALTER TABLE usage ADD COLUMN uptime         INTEGER NOT NULL DEFAULT 0; -- nanoseconds

-- The ends of idle timeouts, as far as the records know.
CREATE INDEX sandboxes_idle_ends ON sandboxes (active_at + idle_timeout) WHERE status = 'idle' AND idle_timeout > 0;

CREATE INDEX executions_created ON executions (created_at);
CREATE INDEX jobs_created ON jobs (created_at);
