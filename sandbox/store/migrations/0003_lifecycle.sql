-- Pause and resume, snapshots, checkpoints, jobs, network, use of resources.

ALTER TABLE sandboxes ADD COLUMN port          INTEGER NOT NULL DEFAULT 0;      -- exposed; 0 for none
ALTER TABLE sandboxes ADD COLUMN network       TEXT    NOT NULL DEFAULT 'null'; -- JSON
ALTER TABLE sandboxes ADD COLUMN snapshot_id   TEXT    NOT NULL DEFAULT '';     -- it was made from
ALTER TABLE sandboxes ADD COLUMN snapshot_tag  TEXT    NOT NULL DEFAULT '';     -- of the snapshot at that time
ALTER TABLE sandboxes ADD COLUMN parent        TEXT    NOT NULL DEFAULT '';     -- the sandbox it was forked from
ALTER TABLE sandboxes ADD COLUMN layers        TEXT    NOT NULL DEFAULT 'null'; -- JSON: ids of the saved layers below its private one
ALTER TABLE sandboxes ADD COLUMN paused_at     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN terminates_at INTEGER NOT NULL DEFAULT 0;      -- end of the paused timeout
ALTER TABLE sandboxes ADD COLUMN memory        INTEGER NOT NULL DEFAULT 0;      -- paused with its memory

ALTER TABLE executions ADD COLUMN auto_resumed INTEGER NOT NULL DEFAULT 0;

-- What is due next, whoever asks.
CREATE INDEX sandboxes_terminates ON sandboxes (terminates_at) WHERE terminates_at <> 0;
CREATE INDEX sandboxes_snapshot ON sandboxes (snapshot_id) WHERE live AND snapshot_id <> '';
CREATE INDEX sandboxes_layers ON sandboxes (id) WHERE live AND layers NOT IN ('null', '[]');
CREATE INDEX sandboxes_org_live ON sandboxes (org) WHERE live AND org <> '';

-- A saved layer is the files of one snapshot, checkpoint or fork, on the disk
-- of the driver's host. It stays as long as anything names it.
CREATE TABLE layers (
  id         TEXT    NOT NULL PRIMARY KEY, -- also the name of its folder
  driver     TEXT    NOT NULL,
  below      TEXT    NOT NULL, -- JSON: ids of the layers under it, the topmost first
  runtime_digest TEXT NOT NULL, -- of the files under all of them
  size_bytes INTEGER NOT NULL,
  files      INTEGER NOT NULL,
  digest     TEXT    NOT NULL, -- of its OCI form; '' until it was needed
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE snapshots (
  id          TEXT    NOT NULL PRIMARY KEY,
  name        TEXT    NOT NULL,
  tag         TEXT    NOT NULL, -- '' for none
  description TEXT    NOT NULL,
  public      INTEGER NOT NULL,
  owner       TEXT    NOT NULL,
  project     TEXT    NOT NULL,
  org         TEXT    NOT NULL,
  sandbox_id  TEXT    NOT NULL, -- it was taken from; '' when imported
  parent      TEXT    NOT NULL, -- the snapshot that sandbox was made from; '' for none
  layer       TEXT    NOT NULL REFERENCES layers (id),
  driver      TEXT    NOT NULL,
  runtime_id          TEXT NOT NULL,
  runtime_name        TEXT NOT NULL,
  runtime_icon_url    TEXT NOT NULL,
  runtime_brand_color TEXT NOT NULL,
  runtime_tags        TEXT NOT NULL, -- JSON
  runtime_source      TEXT NOT NULL,
  runtime_digest      TEXT NOT NULL,
  metadata    TEXT    NOT NULL, -- JSON
  size_bytes  INTEGER NOT NULL,
  files       INTEGER NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX snapshots_tag ON snapshots (owner, tag) WHERE tag <> '';
CREATE INDEX snapshots_created ON snapshots (created_at, id);
CREATE INDEX snapshots_owner ON snapshots (owner, created_at, id);
CREATE INDEX snapshots_parent ON snapshots (parent) WHERE parent <> '';
CREATE INDEX snapshots_sandbox ON snapshots (sandbox_id, created_at);
CREATE INDEX snapshots_layer ON snapshots (layer);

CREATE TABLE checkpoints (
  id         TEXT    NOT NULL PRIMARY KEY,
  sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id),
  name       TEXT    NOT NULL,
  layer      TEXT    NOT NULL REFERENCES layers (id),
  size_bytes INTEGER NOT NULL,
  files      INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX checkpoints_name ON checkpoints (sandbox_id, name);
CREATE INDEX checkpoints_layer ON checkpoints (layer);

CREATE TABLE jobs (
  id               TEXT    NOT NULL PRIMARY KEY,
  sandbox_id       TEXT    NOT NULL REFERENCES sandboxes (id),
  status           TEXT    NOT NULL,
  command          TEXT    NOT NULL, -- JSON
  exit_code        INTEGER,          -- NULL while there is none
  error            TEXT    NOT NULL,
  stdout_bytes     INTEGER NOT NULL,
  stderr_bytes     INTEGER NOT NULL,
  output_truncated INTEGER NOT NULL,
  created_at       INTEGER NOT NULL,
  started_at       INTEGER NOT NULL,
  ended_at         INTEGER NOT NULL,
  open             INTEGER NOT NULL GENERATED ALWAYS AS (status IN ('pending', 'running')) VIRTUAL
) STRICT;

CREATE INDEX jobs_sandbox ON jobs (sandbox_id, created_at);
CREATE INDEX jobs_open ON jobs (sandbox_id) WHERE open;

-- What a sandbox used, sampled while it is up. cpu, net_in and net_out count
-- from its creation; the others are of the moment.
CREATE TABLE usage (
  sandbox_id   TEXT    NOT NULL REFERENCES sandboxes (id),
  at           INTEGER NOT NULL,
  cpu          INTEGER NOT NULL, -- nanoseconds
  memory_bytes INTEGER NOT NULL,
  disk_bytes   INTEGER NOT NULL, -- -1 when not known
  processes    INTEGER NOT NULL,
  net_in       INTEGER NOT NULL, -- bytes
  net_out      INTEGER NOT NULL, -- bytes
  PRIMARY KEY (sandbox_id, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_at ON usage (at);

-- Events get a place among those of all sandboxes, in the order in which they
-- were committed, and the owner of the sandbox, so that what one principal may
-- see is a range of an index. Events are never deleted, so places have no gaps.
CREATE TABLE placed_events (
  position   INTEGER NOT NULL PRIMARY KEY,
  sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id),
  seq        INTEGER NOT NULL, -- 1, 2, 3 … within the sandbox
  id         TEXT    NOT NULL UNIQUE,
  type       TEXT    NOT NULL,
  principal  TEXT    NOT NULL,
  data       TEXT    NOT NULL, -- JSON
  at         INTEGER NOT NULL,
  owner      TEXT    NOT NULL, -- of the sandbox
  UNIQUE (sandbox_id, seq)
) STRICT;
INSERT INTO placed_events (sandbox_id, seq, id, type, principal, data, at, owner)
  SELECT e.sandbox_id, e.seq, e.id, e.type, e.principal, e.data, e.at, s.owner
  FROM events e JOIN sandboxes s ON s.id = e.sandbox_id ORDER BY e.at, e.sandbox_id, e.seq;
DROP TABLE events;
ALTER TABLE placed_events RENAME TO events;
CREATE INDEX events_owner ON events (owner, position);

-- Every change of a sandbox gets a number, by which the catalogue in memory
-- that answers listings learns what is new. It makes the indexes of listings
-- unnecessary but for those of a name and of what is live.
ALTER TABLE sandboxes ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sandboxes_changed ON sandboxes (changed);
CREATE TRIGGER sandboxes_created_change AFTER INSERT ON sandboxes BEGIN
  UPDATE sandboxes SET changed = (SELECT max(changed) + 1 FROM sandboxes) WHERE rowid = NEW.rowid;
END;
CREATE TRIGGER sandboxes_updated_change
AFTER UPDATE OF name, mode, status, owner, project, executions, created_at, updated_at ON sandboxes BEGIN
  UPDATE sandboxes SET changed = (SELECT max(changed) + 1 FROM sandboxes) WHERE rowid = NEW.rowid;
END;
CREATE INDEX sandboxes_name ON sandboxes (name) WHERE name <> '';
DROP INDEX sandboxes_created;
DROP INDEX sandboxes_owner;
