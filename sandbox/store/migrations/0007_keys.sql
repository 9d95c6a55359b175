-- What keys may be used for, groups of principals, and invitations.

ALTER TABLE keys     ADD COLUMN scope    TEXT    NOT NULL DEFAULT '{}'; -- JSON
ALTER TABLE keys     ADD COLUMN no_touch INTEGER NOT NULL DEFAULT 0;    -- a security key may sign untouched
ALTER TABLE api_keys ADD COLUMN scope    TEXT    NOT NULL DEFAULT '{}'; -- JSON

-- Registered projects and orgs.
CREATE TABLE member_groups (
  kind        TEXT    NOT NULL, -- project, org
  name        TEXT    NOT NULL,
  description TEXT    NOT NULL,
  created_by  TEXT    NOT NULL,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
  kind      TEXT    NOT NULL,
  name      TEXT    NOT NULL,
  principal TEXT    NOT NULL,
  added_by  TEXT    NOT NULL,
  added_at  INTEGER NOT NULL,
  PRIMARY KEY (kind, name, principal),
  FOREIGN KEY (kind, name) REFERENCES member_groups (kind, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX members_principal ON members (principal, kind, name);

CREATE TABLE invites (
  id             TEXT    NOT NULL PRIMARY KEY,
  principal      TEXT    NOT NULL,
  role           TEXT    NOT NULL,
  scope          TEXT    NOT NULL, -- JSON
  key_expires_at INTEGER NOT NULL,
  hash           TEXT    NOT NULL UNIQUE, -- hex SHA-256 of the code
  uses           INTEGER NOT NULL,
  used           INTEGER NOT NULL,
  created_by     TEXT    NOT NULL,
  created_at     INTEGER NOT NULL,
  expires_at     INTEGER NOT NULL
) STRICT;

-- Events of the sandboxes of a project.
CREATE INDEX sandboxes_project ON sandboxes (project) WHERE project <> '';
