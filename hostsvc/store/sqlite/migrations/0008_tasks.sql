-- What plugins see of a task and nobody selects by stands in details, as JSON;
-- '' is an empty object. slot says that the task counts for the WIP limit of its
-- step (domain.Task.HoldsSlot).
ALTER TABLE tasks ADD COLUMN ephemeral INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN config_mode INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN origin TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN slot INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN details TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks_closed ADD COLUMN ephemeral INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks_closed ADD COLUMN config_mode INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks_closed ADD COLUMN origin TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks_closed ADD COLUMN slot INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks_closed ADD COLUMN details TEXT NOT NULL DEFAULT '';
UPDATE tasks SET slot = 1 WHERE wip_admitted = 1 AND archived_at IS NULL;

DROP INDEX tasks_slots;
CREATE INDEX tasks_slots ON tasks (workspace_id, workflow_step_id) WHERE slot = 1;
CREATE INDEX tasks_queued ON tasks (workspace_id, queued_for_step_id, COALESCE(queued_at, 0), id)
  WHERE queued_for_step_id <> '' AND archived_at IS NULL;
CREATE INDEX tasks_parent ON tasks (workspace_id, parent_id, id) WHERE parent_id <> '';
CREATE INDEX tasks_closed_parent ON tasks_closed (workspace_id, parent_id, id, version) WHERE parent_id <> '';
-- v1 knows a task by its ID alone, and lists those of the whole instance.
CREATE INDEX tasks_id ON tasks (id, workspace_id);
CREATE INDEX tasks_created ON tasks (COALESCE(created_at, 0) DESC, id, workspace_id);

ALTER TABLE workspaces ADD COLUMN sort_order INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workspaces ADD COLUMN details TEXT NOT NULL DEFAULT '';
ALTER TABLE workspaces_closed ADD COLUMN sort_order INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workspaces_closed ADD COLUMN details TEXT NOT NULL DEFAULT '';
ALTER TABLE workflows ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workflows ADD COLUMN details TEXT NOT NULL DEFAULT '';
ALTER TABLE workflows_closed ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workflows_closed ADD COLUMN details TEXT NOT NULL DEFAULT '';
ALTER TABLE workflow_steps ADD COLUMN details TEXT NOT NULL DEFAULT '';
ALTER TABLE workflow_steps_closed ADD COLUMN details TEXT NOT NULL DEFAULT '';

CREATE INDEX workflow_steps_workflow ON workflow_steps (workflow_id, sort_key);

-- The dependency edges: the target waits for the source. The edges between
-- parents and children are the tasks' own. name is query.RelationKey.
CREATE TABLE task_relations (
  workspace_id   TEXT    NOT NULL,
  name           TEXT    NOT NULL,
  source_task_id TEXT    NOT NULL,
  target_task_id TEXT    NOT NULL,
  created_at     INTEGER,
  version        INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_relations_source ON task_relations (workspace_id, source_task_id, target_task_id);
CREATE INDEX task_relations_target ON task_relations (workspace_id, target_task_id, source_task_id);

CREATE TABLE task_relations_closed (
  workspace_id   TEXT    NOT NULL,
  name           TEXT    NOT NULL,
  source_task_id TEXT    NOT NULL,
  target_task_id TEXT    NOT NULL,
  created_at     INTEGER,
  version        INTEGER NOT NULL,
  valid_to       INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, name, version)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_relations_closed_source ON task_relations_closed (workspace_id, source_task_id, target_task_id, version);
CREATE INDEX task_relations_closed_target ON task_relations_closed (workspace_id, target_task_id, source_task_id, version);

-- sort_key is query.TransitionKey: the order in which pending moves are listed,
-- oldest first.
CREATE TABLE pending_transitions (
  workspace_id      TEXT    NOT NULL,
  id                TEXT    NOT NULL,
  sort_key          TEXT    NOT NULL,
  task_id           TEXT    NOT NULL,
  session_id        TEXT    NOT NULL,
  from_workflow_id  TEXT    NOT NULL,
  from_step_id      TEXT    NOT NULL,
  to_workflow_id    TEXT    NOT NULL,
  to_step_id        TEXT    NOT NULL,
  position          INTEGER NOT NULL,
  predicate         TEXT    NOT NULL,
  actor             TEXT    NOT NULL,
  requester         TEXT    NOT NULL,
  sender_session_id TEXT    NOT NULL,
  queued_at         INTEGER,
  expires_at        INTEGER,
  version           INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX pending_transitions_order ON pending_transitions (workspace_id, sort_key);
CREATE INDEX pending_transitions_task ON pending_transitions (workspace_id, task_id);
CREATE UNIQUE INDEX pending_transitions_session ON pending_transitions (workspace_id, session_id) WHERE session_id <> '';
CREATE INDEX pending_transitions_expiry ON pending_transitions (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE pending_transitions_closed (
  workspace_id      TEXT    NOT NULL,
  id                TEXT    NOT NULL,
  sort_key          TEXT    NOT NULL,
  task_id           TEXT    NOT NULL,
  session_id        TEXT    NOT NULL,
  from_workflow_id  TEXT    NOT NULL,
  from_step_id      TEXT    NOT NULL,
  to_workflow_id    TEXT    NOT NULL,
  to_step_id        TEXT    NOT NULL,
  position          INTEGER NOT NULL,
  predicate         TEXT    NOT NULL,
  actor             TEXT    NOT NULL,
  requester         TEXT    NOT NULL,
  sender_session_id TEXT    NOT NULL,
  queued_at         INTEGER,
  expires_at        INTEGER,
  version           INTEGER NOT NULL,
  valid_to          INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, sort_key, version)
) STRICT, WITHOUT ROWID;

-- The moves that happened. Rows are only ever added, and outlive their task.
CREATE TABLE step_transitions (
  id               INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  workspace_id     TEXT    NOT NULL,
  task_id          TEXT    NOT NULL,
  from_workflow_id TEXT    NOT NULL,
  from_step_id     TEXT    NOT NULL,
  to_workflow_id   TEXT    NOT NULL,
  to_step_id       TEXT    NOT NULL,
  cause            TEXT    NOT NULL,
  actor            TEXT    NOT NULL,
  occurred_at      INTEGER NOT NULL,
  version          INTEGER NOT NULL
) STRICT;

CREATE INDEX step_transitions_task ON step_transitions (task_id, id);
CREATE INDEX step_transitions_from ON step_transitions (from_workflow_id);
CREATE INDEX step_transitions_to ON step_transitions (to_workflow_id);

CREATE TABLE repositories (
  workspace_id           TEXT    NOT NULL,
  id                     TEXT    NOT NULL,
  name                   TEXT    NOT NULL,
  default_branch         TEXT    NOT NULL,
  source_type            TEXT    NOT NULL,
  provider               TEXT    NOT NULL,
  provider_repository_id TEXT    NOT NULL,
  provider_host          TEXT    NOT NULL,
  provider_owner         TEXT    NOT NULL,
  provider_name          TEXT    NOT NULL,
  provider_scope         TEXT    NOT NULL,
  remote_url             TEXT    NOT NULL,
  created_at             INTEGER,
  updated_at             INTEGER,
  version                INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE repositories_closed (
  workspace_id           TEXT    NOT NULL,
  id                     TEXT    NOT NULL,
  name                   TEXT    NOT NULL,
  default_branch         TEXT    NOT NULL,
  source_type            TEXT    NOT NULL,
  provider               TEXT    NOT NULL,
  provider_repository_id TEXT    NOT NULL,
  provider_host          TEXT    NOT NULL,
  provider_owner         TEXT    NOT NULL,
  provider_name          TEXT    NOT NULL,
  provider_scope         TEXT    NOT NULL,
  remote_url             TEXT    NOT NULL,
  created_at             INTEGER,
  updated_at             INTEGER,
  version                INTEGER NOT NULL,
  valid_to               INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
) STRICT, WITHOUT ROWID;

-- Profiles are the instance's: they have no workspace and no version.
CREATE TABLE agent_profiles (
  id           TEXT    NOT NULL PRIMARY KEY,
  agent_id     TEXT    NOT NULL,
  display_name TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  model        TEXT    NOT NULL,
  mode         TEXT    NOT NULL,
  created_at   INTEGER,
  updated_at   INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE executor_profiles (
  id            TEXT    NOT NULL PRIMARY KEY,
  display_name  TEXT    NOT NULL,
  executor_type TEXT    NOT NULL,
  created_at    INTEGER,
  updated_at    INTEGER
) STRICT, WITHOUT ROWID;
