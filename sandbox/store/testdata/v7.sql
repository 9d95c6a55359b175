-- Records that version 7 added.
INSERT INTO member_groups (kind, name, description, created_by, created_at)
VALUES ('project', 'p', '', 'root', 1772600767000000089);
INSERT INTO members (kind, name, principal, added_by, added_at)
VALUES ('project', 'p', 'bob', 'root', 1772600767000000089);
INSERT INTO invites (id, principal, role, scope, key_expires_at, hash, uses, used, created_by, created_at, expires_at)
VALUES ('inv_old', 'carol', 'member', '{"verbs":["shell"]}', 0, 'd0d0', 2, 1, 'root', 1772600767000000089, 1772700767000000000);
