-- The lease, the comparison of the epoch's rows with the history, the cluster
-- that the store belongs to, and the last proof of the admission policies are
-- columns of the one row of the store: the statements that every transaction
-- and every read begin with read it already, and a reader never waits for who
-- writes it. lease_from and lease_until are microseconds since 1970 by the
-- store's clock; an epoch is complete when complete_epoch is it. adopting: the
-- store comes from another cluster, and not everything in it has been retired
-- yet.
ALTER TABLE store
  ADD COLUMN complete_epoch bigint NOT NULL DEFAULT 0,
  ADD COLUMN lease_from     bigint NOT NULL DEFAULT 0,
  ADD COLUMN lease_until    bigint NOT NULL DEFAULT 0,
  ADD COLUMN beat           bigint NOT NULL DEFAULT 0,
  ADD COLUMN cluster_uid    text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN adopting       bigint NOT NULL DEFAULT 0,
  ADD COLUMN proof_pins     text COLLATE "C" NOT NULL DEFAULT '';

ALTER TABLE authority
  ADD COLUMN approved_via text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN confirmed_by text COLLATE "C" NOT NULL DEFAULT '';

-- Up to which generation an approval object widens nothing.
CREATE TABLE distrusted (
  uid        text COLLATE "C" NOT NULL PRIMARY KEY,
  generation bigint NOT NULL
);

-- Events of authority that the API does not keep any more.
CREATE TABLE approval_events (
  installation_id text COLLATE "C" NOT NULL,
  workspace_id    text COLLATE "C" NOT NULL,
  revision        bigint NOT NULL,
  hash            text COLLATE "C" NOT NULL,
  document        text COLLATE "C" NOT NULL,
  archived_at     bigint NOT NULL,
  PRIMARY KEY (installation_id, workspace_id, revision)
);
