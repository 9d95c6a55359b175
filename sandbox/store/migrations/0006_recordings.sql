-- Recordings of sessions. They outlive their sandbox, whose record stays.

CREATE TABLE recordings (
  id         TEXT    NOT NULL PRIMARY KEY,
  sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id),
  session_id TEXT    NOT NULL,
  session    TEXT    NOT NULL, -- its name when the recording began
  owner      TEXT    NOT NULL, -- who started the session
  command    TEXT    NOT NULL,
  input      INTEGER NOT NULL, -- what was typed is in it
  bytes      INTEGER NOT NULL,
  duration   INTEGER NOT NULL, -- nanoseconds
  complete   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL  -- 0 while it is made
) STRICT;

CREATE INDEX recordings_created ON recordings (created_at);
CREATE INDEX recordings_sandbox ON recordings (sandbox_id, created_at);
CREATE INDEX recordings_open ON recordings (created_at) WHERE ended_at = 0;
