-- Who may come in: public keys and API keys.

CREATE TABLE keys (
  fingerprint  TEXT    NOT NULL PRIMARY KEY,
  type         TEXT    NOT NULL,
  public_key   TEXT    NOT NULL,
  comment      TEXT    NOT NULL,
  principal    TEXT    NOT NULL,
  role         TEXT    NOT NULL,
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER NOT NULL,
  last_used_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
  id           TEXT    NOT NULL PRIMARY KEY,
  name         TEXT    NOT NULL,
  principal    TEXT    NOT NULL,
  role         TEXT    NOT NULL,
  hash         TEXT    NOT NULL UNIQUE, -- hex SHA-256 of the secret
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER NOT NULL,
  last_used_at INTEGER NOT NULL
) STRICT;
