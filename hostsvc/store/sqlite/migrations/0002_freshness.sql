-- The lease, the comparison of the epoch's rows with the history, the cluster
-- that the store belongs to, and the last proof of the admission policies are
-- columns of the one row of the store: the statements that every transaction
-- and every read begin with read it already. lease_from and lease_until are
-- microseconds since 1970 by the store's clock; an epoch is complete when
-- complete_epoch is it. adopting: the store comes from another cluster, and not
-- everything in it has been retired yet.
ALTER TABLE store ADD COLUMN complete_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE store ADD COLUMN lease_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE store ADD COLUMN lease_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE store ADD COLUMN beat INTEGER NOT NULL DEFAULT 0;
ALTER TABLE store ADD COLUMN cluster_uid TEXT NOT NULL DEFAULT '';
ALTER TABLE store ADD COLUMN adopting INTEGER NOT NULL DEFAULT 0;
ALTER TABLE store ADD COLUMN proof_pins TEXT NOT NULL DEFAULT '';

ALTER TABLE authority ADD COLUMN approved_via TEXT NOT NULL DEFAULT '';
ALTER TABLE authority ADD COLUMN confirmed_by TEXT NOT NULL DEFAULT '';

-- Up to which generation an approval object widens nothing.
CREATE TABLE distrusted (
  uid        TEXT    NOT NULL PRIMARY KEY,
  generation INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Events of authority that the API does not keep any more.
CREATE TABLE approval_events (
  installation_id TEXT    NOT NULL,
  workspace_id    TEXT    NOT NULL,
  revision        INTEGER NOT NULL,
  hash            TEXT    NOT NULL,
  document        TEXT    NOT NULL,
  archived_at     INTEGER NOT NULL,
  PRIMARY KEY (installation_id, workspace_id, revision)
) STRICT;
