-- What plugins keep with the Host. It belongs to an installation, is in no
-- workspace's order, and goes with the installation's tombstone. size is what
-- counts of an entry: its names and its value, which is a JSON object.
CREATE TABLE plugin_state (
  installation_id TEXT    NOT NULL,
  scope           TEXT    NOT NULL,
  scope_id        TEXT    NOT NULL,
  key             TEXT    NOT NULL,
  size            INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  value           TEXT    NOT NULL,
  PRIMARY KEY (installation_id, scope, scope_id, key)
) STRICT;

-- The number of an installation's entries, and the sum of their sizes.
CREATE TABLE plugin_usage (
  installation_id TEXT    NOT NULL PRIMARY KEY,
  entries         INTEGER NOT NULL,
  bytes           INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Secrets, as the vault has sealed them: the database holds no key.
CREATE TABLE plugin_secrets (
  installation_id TEXT    NOT NULL,
  key             TEXT    NOT NULL,
  sealed          BLOB    NOT NULL,
  updated_at      INTEGER NOT NULL,
  PRIMARY KEY (installation_id, key)
) STRICT;
