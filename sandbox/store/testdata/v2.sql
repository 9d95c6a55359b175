-- Records that version 2 added to those of version 1.
INSERT INTO keys (fingerprint, type, public_key, comment, principal, role, created_at, expires_at, last_used_at)
VALUES ('SHA256:old', 'ssh-ed25519', 'ssh-ed25519 AAAA', 'alice@laptop', 'alice', 'admin', 1772600767000000089, 0, 0);
INSERT INTO api_keys (id, name, principal, role, hash, created_at, expires_at, last_used_at)
VALUES ('key_old', 'ci', 'alice', 'member', 'c0ffee', 1772600767000000089, 0, 0);
