-- Sets (granted, gates, ...) are bits, flags are 0 or 1. Instants of authority
-- are microseconds since 1970, all others nanoseconds; NULL is "none".

CREATE TABLE store (
  id           bigint  NOT NULL PRIMARY KEY CHECK (id = 1),
  store_id     text COLLATE "C" NOT NULL,
  store_epoch  bigint  NOT NULL,
  leader_epoch bigint  NOT NULL
);

-- One row per workspace: its commit order, the end of its chain, and the
-- oldest version that lists can be read as of.
CREATE TABLE heads (
  workspace_id text COLLATE "C" NOT NULL PRIMARY KEY,
  version      bigint  NOT NULL,
  hash         text COLLATE "C" NOT NULL,
  oldest       bigint  NOT NULL
);

CREATE TABLE authority (
  installation_id text COLLATE "C" NOT NULL,
  workspace_id    text COLLATE "C" NOT NULL,
  revision        bigint  NOT NULL,
  act             text COLLATE "C" NOT NULL,
  state           bigint  NOT NULL,
  granted         bigint  NOT NULL,
  declared        bigint  NOT NULL,
  required        bigint  NOT NULL,
  allowed         bigint  NOT NULL,
  expires_at      bigint,
  gates           bigint  NOT NULL,
  hold            text COLLATE "C",
  starting        bigint  NOT NULL,
  manifest_digest text COLLATE "C" NOT NULL,
  vector_sum      bytea   NOT NULL,
  vector          text COLLATE "C" NOT NULL,
  seen_uid        text COLLATE "C" NOT NULL,
  seen_generation bigint  NOT NULL,
  seen_gone       bigint  NOT NULL,
  seen_revoked    bigint  NOT NULL,
  actor           text COLLATE "C" NOT NULL,
  assurance       text COLLATE "C" NOT NULL,
  cause           text COLLATE "C" NOT NULL,
  reason          text COLLATE "C" NOT NULL,
  approved_by     text COLLATE "C" NOT NULL,
  issued_at       bigint,
  updated_at      bigint,
  audit_id        text COLLATE "C" NOT NULL,
  event_hash      text COLLATE "C" NOT NULL,
  unproven        bigint  NOT NULL,
  store_epoch     bigint  NOT NULL,
  leader_epoch    bigint  NOT NULL,
  changes         bigint  NOT NULL,
  PRIMARY KEY (installation_id, workspace_id)
);

-- Audit receipt, idempotency record and outbox event at once (I8).
CREATE TABLE journal (
  workspace_id    text COLLATE "C" NOT NULL,
  version         bigint  NOT NULL,
  kind            text COLLATE "C" NOT NULL,
  audit_id        text COLLATE "C" NOT NULL,
  installation_id text COLLATE "C" NOT NULL,
  revision        bigint  NOT NULL,
  method          text COLLATE "C" NOT NULL,
  capability      text COLLATE "C" NOT NULL,
  request_id      text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C",
  command_digest  bytea   NOT NULL,
  result          text COLLATE "C" NOT NULL,
  target_id       text COLLATE "C" NOT NULL,
  before_version  text COLLATE "C" NOT NULL,
  after_version   text COLLATE "C" NOT NULL,
  event_type      text COLLATE "C" NOT NULL,
  event           text COLLATE "C" NOT NULL,
  at              bigint  NOT NULL,
  previous_hash   text COLLATE "C" NOT NULL,
  hash            text COLLATE "C" NOT NULL,
  PRIMARY KEY (workspace_id, version)
);

CREATE UNIQUE INDEX journal_idempotency ON journal (installation_id, workspace_id, idempotency_key)
  WHERE idempotency_key IS NOT NULL;

CREATE TABLE workspaces (
  workspace_id text COLLATE "C" NOT NULL PRIMARY KEY,
  name         text COLLATE "C" NOT NULL,
  description  text COLLATE "C" NOT NULL,
  created_at   bigint,
  updated_at   bigint,
  version      bigint  NOT NULL
);

CREATE TABLE workspaces_closed (
  workspace_id text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  description  text COLLATE "C" NOT NULL,
  created_at   bigint,
  updated_at   bigint,
  version      bigint  NOT NULL,
  valid_to     bigint  NOT NULL,
  PRIMARY KEY (workspace_id, version)
);

CREATE TABLE workflows (
  workspace_id text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  description  text COLLATE "C" NOT NULL,
  sort_order   bigint  NOT NULL,
  created_at   bigint,
  updated_at   bigint,
  version      bigint  NOT NULL,
  PRIMARY KEY (workspace_id, id)
);

CREATE TABLE workflows_closed (
  workspace_id text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  description  text COLLATE "C" NOT NULL,
  sort_order   bigint  NOT NULL,
  created_at   bigint,
  updated_at   bigint,
  version      bigint  NOT NULL,
  valid_to     bigint  NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
);

-- sort_key is query.StepKey: the order in which the steps of a workflow are
-- listed.
CREATE TABLE workflow_steps (
  workspace_id      text COLLATE "C" NOT NULL,
  workflow_id       text COLLATE "C" NOT NULL,
  sort_key          text COLLATE "C" NOT NULL,
  id                text COLLATE "C" NOT NULL,
  name              text COLLATE "C" NOT NULL,
  position          bigint  NOT NULL,
  stage_type        text COLLATE "C" NOT NULL,
  color             text COLLATE "C" NOT NULL,
  start             bigint  NOT NULL,
  wip_limit         bigint  NOT NULL,
  pull_from_step_id text COLLATE "C" NOT NULL,
  version           bigint  NOT NULL,
  PRIMARY KEY (workspace_id, id)
);

CREATE UNIQUE INDEX workflow_steps_order ON workflow_steps (workspace_id, workflow_id, sort_key);

CREATE TABLE workflow_steps_closed (
  workspace_id      text COLLATE "C" NOT NULL,
  workflow_id       text COLLATE "C" NOT NULL,
  sort_key          text COLLATE "C" NOT NULL,
  id                text COLLATE "C" NOT NULL,
  name              text COLLATE "C" NOT NULL,
  position          bigint  NOT NULL,
  stage_type        text COLLATE "C" NOT NULL,
  color             text COLLATE "C" NOT NULL,
  start             bigint  NOT NULL,
  wip_limit         bigint  NOT NULL,
  pull_from_step_id text COLLATE "C" NOT NULL,
  version           bigint  NOT NULL,
  valid_to          bigint  NOT NULL,
  PRIMARY KEY (workspace_id, workflow_id, sort_key, version)
);

CREATE TABLE tasks (
  workspace_id       text COLLATE "C" NOT NULL,
  id                 text COLLATE "C" NOT NULL,
  workflow_id        text COLLATE "C" NOT NULL,
  workflow_step_id   text COLLATE "C" NOT NULL,
  position           bigint  NOT NULL,
  title              text COLLATE "C" NOT NULL,
  description        text COLLATE "C" NOT NULL,
  state              text COLLATE "C" NOT NULL,
  priority           text COLLATE "C" NOT NULL,
  parent_id          text COLLATE "C" NOT NULL,
  labels             text COLLATE "C" NOT NULL,
  external_id        text COLLATE "C" NOT NULL,
  source             text COLLATE "C" NOT NULL,
  wip_admitted       bigint  NOT NULL,
  queued_for_step_id text COLLATE "C" NOT NULL,
  queued_at          bigint,
  created_at         bigint,
  updated_at         bigint,
  started_at         bigint,
  completed_at       bigint,
  archived_at        bigint,
  version            bigint  NOT NULL,
  PRIMARY KEY (workspace_id, id)
);

CREATE UNIQUE INDEX tasks_external ON tasks (workspace_id, source, external_id) WHERE external_id <> '';
CREATE INDEX tasks_step ON tasks (workspace_id, workflow_step_id, position);
CREATE INDEX tasks_slots ON tasks (workspace_id, workflow_step_id) WHERE wip_admitted = 1 AND archived_at IS NULL;

CREATE TABLE tasks_closed (
  workspace_id       text COLLATE "C" NOT NULL,
  id                 text COLLATE "C" NOT NULL,
  workflow_id        text COLLATE "C" NOT NULL,
  workflow_step_id   text COLLATE "C" NOT NULL,
  position           bigint  NOT NULL,
  title              text COLLATE "C" NOT NULL,
  description        text COLLATE "C" NOT NULL,
  state              text COLLATE "C" NOT NULL,
  priority           text COLLATE "C" NOT NULL,
  parent_id          text COLLATE "C" NOT NULL,
  labels             text COLLATE "C" NOT NULL,
  external_id        text COLLATE "C" NOT NULL,
  source             text COLLATE "C" NOT NULL,
  wip_admitted       bigint  NOT NULL,
  queued_for_step_id text COLLATE "C" NOT NULL,
  queued_at          bigint,
  created_at         bigint,
  updated_at         bigint,
  started_at         bigint,
  completed_at       bigint,
  archived_at        bigint,
  version            bigint  NOT NULL,
  valid_to           bigint  NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
);

-- Which namespace a workspace ID stands for; a row is never changed.
CREATE TABLE bindings (
  workspace_id  text COLLATE "C" NOT NULL PRIMARY KEY,
  namespace     text COLLATE "C" NOT NULL,
  namespace_uid text COLLATE "C" NOT NULL,
  bound_at      bigint  NOT NULL
);

CREATE TABLE installations (
  object_uid      text COLLATE "C" NOT NULL PRIMARY KEY,
  installation_id text COLLATE "C" NOT NULL UNIQUE,
  name            text COLLATE "C" NOT NULL,
  recorded_at     bigint  NOT NULL
);

CREATE TABLE tombstones (
  installation_id text COLLATE "C" NOT NULL PRIMARY KEY,
  at              bigint  NOT NULL
);

-- The end of each chain of receipts, and its segments.
CREATE TABLE chains (
  chain text COLLATE "C" NOT NULL PRIMARY KEY,
  idx   bigint  NOT NULL,
  hash  text COLLATE "C" NOT NULL
);

CREATE TABLE segments (
  chain         text COLLATE "C" NOT NULL,
  idx           bigint  NOT NULL,
  receipts      bigint  NOT NULL,
  body          bytea   NOT NULL,
  previous_hash text COLLATE "C" NOT NULL,
  hash          text COLLATE "C" NOT NULL,
  at            bigint  NOT NULL,
  PRIMARY KEY (chain, idx)
);

-- Each root names the heads of all chains that moved since the root before.
CREATE TABLE roots (
  number        bigint  NOT NULL PRIMARY KEY,
  at            bigint  NOT NULL,
  previous_hash text COLLATE "C" NOT NULL,
  hash          text COLLATE "C" NOT NULL,
  body          bytea   NOT NULL
);

-- What the roots name each chain's head as, last, and the newest root itself.
CREATE TABLE rooted (
  kind     text COLLATE "C" NOT NULL,
  chain    text COLLATE "C" NOT NULL,
  position bigint  NOT NULL,
  hash     text COLLATE "C" NOT NULL,
  PRIMARY KEY (kind, chain)
);
