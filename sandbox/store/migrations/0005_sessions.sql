-- Interactive sessions. Who is attached, and what a terminal shows, is nobody's
-- record: it lives in the server and in the guest.

CREATE TABLE sessions (
  id          TEXT    NOT NULL PRIMARY KEY,
  sandbox_id  TEXT    NOT NULL REFERENCES sandboxes (id),
  name        TEXT    NOT NULL,
  owner       TEXT    NOT NULL,
  process_id  TEXT    NOT NULL, -- in the guest
  command     TEXT    NOT NULL, -- '' for the login shell
  user        TEXT    NOT NULL, -- '' for the sandbox's default
  status      TEXT    NOT NULL,
  recording   TEXT    NOT NULL, -- '' for none
  exit        TEXT    NOT NULL, -- JSON: null while there is none
  reason      TEXT    NOT NULL,
  created_at  INTEGER NOT NULL,
  detached_at INTEGER NOT NULL,
  ended_at    INTEGER NOT NULL,
  active_at   INTEGER NOT NULL,
  live        INTEGER NOT NULL GENERATED ALWAYS AS (status <> 'ended') VIRTUAL
) STRICT;

CREATE UNIQUE INDEX sessions_name ON sessions (sandbox_id, name) WHERE live;
CREATE INDEX sessions_sandbox ON sessions (sandbox_id, created_at);
CREATE INDEX sessions_created ON sessions (created_at);
CREATE INDEX sessions_live ON sessions (created_at) WHERE live;
