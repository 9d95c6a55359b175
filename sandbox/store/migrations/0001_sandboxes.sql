-- Sandboxes, what was executed in them, and what happened to them.
--
-- Conventions of every table: times are nanoseconds since the Unix epoch in
-- UTC, 0 for "never"; durations are nanoseconds; lists and maps are JSON.

CREATE TABLE sandboxes (
  id                  TEXT    NOT NULL PRIMARY KEY,
  name                TEXT    NOT NULL, -- '' for none
  description         TEXT    NOT NULL,
  mode                TEXT    NOT NULL,
  status              TEXT    NOT NULL,
  status_reason       TEXT    NOT NULL,
  owner               TEXT    NOT NULL,
  project             TEXT    NOT NULL,
  org                 TEXT    NOT NULL,
  driver              TEXT    NOT NULL,
  runtime_id          TEXT    NOT NULL,
  runtime_name        TEXT    NOT NULL,
  runtime_icon_url    TEXT    NOT NULL,
  runtime_brand_color TEXT    NOT NULL,
  runtime_tags        TEXT    NOT NULL, -- JSON
  runtime_source      TEXT    NOT NULL,
  runtime_digest      TEXT    NOT NULL,
  memory_bytes        INTEGER NOT NULL,
  cpu_millis          INTEGER NOT NULL,
  disk_bytes          INTEGER NOT NULL,
  processes           INTEGER NOT NULL,
  env                 TEXT    NOT NULL, -- JSON
  metadata            TEXT    NOT NULL, -- JSON
  idle_timeout        INTEGER NOT NULL,
  execution_timeout   INTEGER NOT NULL,
  paused_timeout      INTEGER NOT NULL,
  command             TEXT    NOT NULL, -- JSON
  executions          INTEGER NOT NULL,
  exit_code           INTEGER,          -- NULL while there is none
  guest               TEXT    NOT NULL,
  created_at          INTEGER NOT NULL,
  updated_at          INTEGER NOT NULL,
  ended_at            INTEGER NOT NULL,
  active_at           INTEGER NOT NULL,
  live                INTEGER NOT NULL GENERATED ALWAYS AS
    (status IN ('creating', 'idle', 'running', 'paused', 'stopping', 'suspended')) VIRTUAL
) STRICT;

-- A name is free again as soon as the sandbox that had it has ended.
CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (owner, name) WHERE live AND name <> '';
-- The usual listings, newest first, and their counts: of all and of one owner,
-- with what has ended and without.
CREATE INDEX sandboxes_created ON sandboxes (created_at, id);
CREATE INDEX sandboxes_owner ON sandboxes (owner, created_at, id);
CREATE INDEX sandboxes_live ON sandboxes (created_at, id) WHERE live;
CREATE INDEX sandboxes_owner_live ON sandboxes (owner, created_at, id) WHERE live;

CREATE TABLE executions (
  id               TEXT    NOT NULL PRIMARY KEY,
  sandbox_id       TEXT    NOT NULL REFERENCES sandboxes (id),
  status           TEXT    NOT NULL,
  command          TEXT    NOT NULL, -- JSON
  exit_code        INTEGER,          -- NULL while there is none
  error            TEXT    NOT NULL,
  timeout          INTEGER NOT NULL,
  stdout_bytes     INTEGER NOT NULL,
  stderr_bytes     INTEGER NOT NULL,
  output_truncated INTEGER NOT NULL,
  created_at       INTEGER NOT NULL,
  started_at       INTEGER NOT NULL,
  ended_at         INTEGER NOT NULL,
  open             INTEGER NOT NULL GENERATED ALWAYS AS (status IN ('queued', 'running')) VIRTUAL
) STRICT;

CREATE INDEX executions_sandbox ON executions (sandbox_id, created_at);
CREATE INDEX executions_open ON executions (sandbox_id) WHERE open;

CREATE TABLE events (
  sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id),
  seq        INTEGER NOT NULL, -- 1, 2, 3 … within the sandbox
  id         TEXT    NOT NULL UNIQUE,
  type       TEXT    NOT NULL,
  principal  TEXT    NOT NULL,
  data       TEXT    NOT NULL, -- JSON
  at         INTEGER NOT NULL,
  PRIMARY KEY (sandbox_id, seq)
) STRICT, WITHOUT ROWID;
