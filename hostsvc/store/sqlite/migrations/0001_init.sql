-- Sets (granted, gates, ...) are bits, flags are 0 or 1. Instants of authority
-- are microseconds since 1970, all others nanoseconds; NULL is "none".

CREATE TABLE store (
  id           INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  store_id     TEXT    NOT NULL,
  store_epoch  INTEGER NOT NULL,
  leader_epoch INTEGER NOT NULL
) STRICT;

-- One row per workspace: its commit order, the end of its chain, and the
-- oldest version that lists can be read as of.
CREATE TABLE heads (
  workspace_id TEXT    NOT NULL PRIMARY KEY,
  version      INTEGER NOT NULL,
  hash         TEXT    NOT NULL,
  oldest       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE authority (
  installation_id TEXT    NOT NULL,
  workspace_id    TEXT    NOT NULL,
  revision        INTEGER NOT NULL,
  act             TEXT    NOT NULL,
  state           INTEGER NOT NULL,
  granted         INTEGER NOT NULL,
  declared        INTEGER NOT NULL,
  required        INTEGER NOT NULL,
  allowed         INTEGER NOT NULL,
  expires_at      INTEGER,
  gates           INTEGER NOT NULL,
  hold            TEXT,
  starting        INTEGER NOT NULL,
  manifest_digest TEXT    NOT NULL,
  vector_sum      BLOB    NOT NULL,
  vector          TEXT    NOT NULL,
  seen_uid        TEXT    NOT NULL,
  seen_generation INTEGER NOT NULL,
  seen_gone       INTEGER NOT NULL,
  seen_revoked    INTEGER NOT NULL,
  actor           TEXT    NOT NULL,
  assurance       TEXT    NOT NULL,
  cause           TEXT    NOT NULL,
  reason          TEXT    NOT NULL,
  approved_by     TEXT    NOT NULL,
  issued_at       INTEGER,
  updated_at      INTEGER,
  audit_id        TEXT    NOT NULL,
  event_hash      TEXT    NOT NULL,
  unproven        INTEGER NOT NULL,
  store_epoch     INTEGER NOT NULL,
  leader_epoch    INTEGER NOT NULL,
  changes         INTEGER NOT NULL,
  PRIMARY KEY (installation_id, workspace_id)
) STRICT, WITHOUT ROWID;

-- Audit receipt, idempotency record and outbox event at once (I8). Its wide rows
-- are only ever added: by rowid they fill one page after the other, and the key
-- has a narrow index. In the order of the key, every third command divides pages.
CREATE TABLE journal (
  workspace_id    TEXT    NOT NULL,
  version         INTEGER NOT NULL,
  kind            TEXT    NOT NULL,
  audit_id        TEXT    NOT NULL,
  installation_id TEXT    NOT NULL,
  revision        INTEGER NOT NULL,
  method          TEXT    NOT NULL,
  capability      TEXT    NOT NULL,
  request_id      TEXT    NOT NULL,
  idempotency_key TEXT,
  command_digest  BLOB    NOT NULL,
  result          TEXT    NOT NULL,
  target_id       TEXT    NOT NULL,
  before_version  TEXT    NOT NULL,
  after_version   TEXT    NOT NULL,
  event_type      TEXT    NOT NULL,
  event           TEXT    NOT NULL,
  at              INTEGER NOT NULL,
  previous_hash   TEXT    NOT NULL,
  hash            TEXT    NOT NULL,
  PRIMARY KEY (workspace_id, version)
) STRICT;

CREATE UNIQUE INDEX journal_idempotency ON journal (installation_id, workspace_id, idempotency_key)
  WHERE idempotency_key IS NOT NULL;

CREATE TABLE workspaces (
  workspace_id TEXT    NOT NULL PRIMARY KEY,
  name         TEXT    NOT NULL,
  description  TEXT    NOT NULL,
  created_at   INTEGER,
  updated_at   INTEGER,
  version      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workspaces_closed (
  workspace_id TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  description  TEXT    NOT NULL,
  created_at   INTEGER,
  updated_at   INTEGER,
  version      INTEGER NOT NULL,
  valid_to     INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflows (
  workspace_id TEXT    NOT NULL,
  id           TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  description  TEXT    NOT NULL,
  sort_order   INTEGER NOT NULL,
  created_at   INTEGER,
  updated_at   INTEGER,
  version      INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflows_closed (
  workspace_id TEXT    NOT NULL,
  id           TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  description  TEXT    NOT NULL,
  sort_order   INTEGER NOT NULL,
  created_at   INTEGER,
  updated_at   INTEGER,
  version      INTEGER NOT NULL,
  valid_to     INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
) STRICT, WITHOUT ROWID;

-- sort_key is query.StepKey: the order in which the steps of a workflow are
-- listed.
CREATE TABLE workflow_steps (
  workspace_id      TEXT    NOT NULL,
  workflow_id       TEXT    NOT NULL,
  sort_key          TEXT    NOT NULL,
  id                TEXT    NOT NULL,
  name              TEXT    NOT NULL,
  position          INTEGER NOT NULL,
  stage_type        TEXT    NOT NULL,
  color             TEXT    NOT NULL,
  start             INTEGER NOT NULL,
  wip_limit         INTEGER NOT NULL,
  pull_from_step_id TEXT    NOT NULL,
  version           INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX workflow_steps_order ON workflow_steps (workspace_id, workflow_id, sort_key);

CREATE TABLE workflow_steps_closed (
  workspace_id      TEXT    NOT NULL,
  workflow_id       TEXT    NOT NULL,
  sort_key          TEXT    NOT NULL,
  id                TEXT    NOT NULL,
  name              TEXT    NOT NULL,
  position          INTEGER NOT NULL,
  stage_type        TEXT    NOT NULL,
  color             TEXT    NOT NULL,
  start             INTEGER NOT NULL,
  wip_limit         INTEGER NOT NULL,
  pull_from_step_id TEXT    NOT NULL,
  version           INTEGER NOT NULL,
  valid_to          INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, workflow_id, sort_key, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE tasks (
  workspace_id       TEXT    NOT NULL,
  id                 TEXT    NOT NULL,
  workflow_id        TEXT    NOT NULL,
  workflow_step_id   TEXT    NOT NULL,
  position           INTEGER NOT NULL,
  title              TEXT    NOT NULL,
  description        TEXT    NOT NULL,
  state              TEXT    NOT NULL,
  priority           TEXT    NOT NULL,
  parent_id          TEXT    NOT NULL,
  labels             TEXT    NOT NULL,
  external_id        TEXT    NOT NULL,
  source             TEXT    NOT NULL,
  wip_admitted       INTEGER NOT NULL,
  queued_for_step_id TEXT    NOT NULL,
  queued_at          INTEGER,
  created_at         INTEGER,
  updated_at         INTEGER,
  started_at         INTEGER,
  completed_at       INTEGER,
  archived_at        INTEGER,
  version            INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id)
) STRICT;

CREATE UNIQUE INDEX tasks_external ON tasks (workspace_id, source, external_id) WHERE external_id <> '';
CREATE INDEX tasks_step ON tasks (workspace_id, workflow_step_id, position);
CREATE INDEX tasks_slots ON tasks (workspace_id, workflow_step_id) WHERE wip_admitted = 1 AND archived_at IS NULL;

CREATE TABLE tasks_closed (
  workspace_id       TEXT    NOT NULL,
  id                 TEXT    NOT NULL,
  workflow_id        TEXT    NOT NULL,
  workflow_step_id   TEXT    NOT NULL,
  position           INTEGER NOT NULL,
  title              TEXT    NOT NULL,
  description        TEXT    NOT NULL,
  state              TEXT    NOT NULL,
  priority           TEXT    NOT NULL,
  parent_id          TEXT    NOT NULL,
  labels             TEXT    NOT NULL,
  external_id        TEXT    NOT NULL,
  source             TEXT    NOT NULL,
  wip_admitted       INTEGER NOT NULL,
  queued_for_step_id TEXT    NOT NULL,
  queued_at          INTEGER,
  created_at         INTEGER,
  updated_at         INTEGER,
  started_at         INTEGER,
  completed_at       INTEGER,
  archived_at        INTEGER,
  version            INTEGER NOT NULL,
  valid_to           INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
) STRICT, WITHOUT ROWID;

-- Which namespace a workspace ID stands for; a row is never changed.
CREATE TABLE bindings (
  workspace_id  TEXT    NOT NULL PRIMARY KEY,
  namespace     TEXT    NOT NULL,
  namespace_uid TEXT    NOT NULL,
  bound_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE installations (
  object_uid      TEXT    NOT NULL PRIMARY KEY,
  installation_id TEXT    NOT NULL UNIQUE,
  name            TEXT    NOT NULL,
  recorded_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstones (
  installation_id TEXT    NOT NULL PRIMARY KEY,
  at              INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The end of each chain of receipts, and its segments.
CREATE TABLE chains (
  chain TEXT    NOT NULL PRIMARY KEY,
  idx   INTEGER NOT NULL,
  hash  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE segments (
  chain         TEXT    NOT NULL,
  idx           INTEGER NOT NULL,
  receipts      INTEGER NOT NULL,
  body          BLOB    NOT NULL,
  previous_hash TEXT    NOT NULL,
  hash          TEXT    NOT NULL,
  at            INTEGER NOT NULL,
  PRIMARY KEY (chain, idx)
) STRICT;

-- Each root names the heads of all chains that moved since the root before.
-- They are only ever added, and their order is that of their number.
CREATE TABLE roots (
  number        INTEGER NOT NULL PRIMARY KEY,
  at            INTEGER NOT NULL,
  previous_hash TEXT    NOT NULL,
  hash          TEXT    NOT NULL,
  body          BLOB    NOT NULL
) STRICT;

-- What the roots name each chain's head as, last, and the newest root itself.
CREATE TABLE rooted (
  kind     TEXT    NOT NULL,
  chain    TEXT    NOT NULL,
  position INTEGER NOT NULL,
  hash     TEXT    NOT NULL,
  PRIMARY KEY (kind, chain)
) STRICT, WITHOUT ROWID;
