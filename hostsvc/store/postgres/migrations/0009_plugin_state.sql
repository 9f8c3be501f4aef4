-- What plugins keep with the Host. It belongs to an installation, is in no
-- workspace's order, and goes with the installation's tombstone. size is what
-- counts of an entry: its names and its value, which is a JSON object.
CREATE TABLE plugin_state (
  installation_id text COLLATE "C" NOT NULL,
  scope           text COLLATE "C" NOT NULL,
  scope_id        text COLLATE "C" NOT NULL,
  key             text COLLATE "C" NOT NULL,
  size            bigint NOT NULL,
  updated_at      bigint NOT NULL,
  value           text COLLATE "C" NOT NULL,
  PRIMARY KEY (installation_id, scope, scope_id, key)
);

-- The number of an installation's entries, and the sum of their sizes.
CREATE TABLE plugin_usage (
  installation_id text COLLATE "C" NOT NULL PRIMARY KEY,
  entries         bigint NOT NULL,
  bytes           bigint NOT NULL
);

-- Secrets, as the vault has sealed them: the database holds no key.
CREATE TABLE plugin_secrets (
  installation_id text COLLATE "C" NOT NULL,
  key             text COLLATE "C" NOT NULL,
  sealed          bytea  NOT NULL,
  updated_at      bigint NOT NULL,
  PRIMARY KEY (installation_id, key)
);
