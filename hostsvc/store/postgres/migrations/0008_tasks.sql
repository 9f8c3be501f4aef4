-- What plugins see of a task and nobody selects by stands in details, as JSON;
-- '' is an empty object. slot says that the task counts for the WIP limit of its
-- step (domain.Task.HoldsSlot).
ALTER TABLE tasks
  ADD COLUMN ephemeral   bigint NOT NULL DEFAULT 0,
  ADD COLUMN config_mode bigint NOT NULL DEFAULT 0,
  ADD COLUMN origin      text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN slot        bigint NOT NULL DEFAULT 0,
  ADD COLUMN details     text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE tasks_closed
  ADD COLUMN ephemeral   bigint NOT NULL DEFAULT 0,
  ADD COLUMN config_mode bigint NOT NULL DEFAULT 0,
  ADD COLUMN origin      text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN slot        bigint NOT NULL DEFAULT 0,
  ADD COLUMN details     text COLLATE "C" NOT NULL DEFAULT '';
UPDATE tasks SET slot = 1 WHERE wip_admitted = 1 AND archived_at IS NULL;

DROP INDEX tasks_slots;
CREATE INDEX tasks_slots ON tasks (workspace_id, workflow_step_id) WHERE slot = 1;
CREATE INDEX tasks_queued ON tasks (workspace_id, queued_for_step_id, (COALESCE(queued_at, 0)), id)
  WHERE queued_for_step_id <> '' AND archived_at IS NULL;
CREATE INDEX tasks_parent ON tasks (workspace_id, parent_id, id) WHERE parent_id <> '';
CREATE INDEX tasks_closed_parent ON tasks_closed (workspace_id, parent_id, id, version) WHERE parent_id <> '';
-- v1 knows a task by its ID alone, and lists those of the whole instance.
CREATE INDEX tasks_id ON tasks (id, workspace_id);
CREATE INDEX tasks_created ON tasks ((COALESCE(created_at, 0)) DESC, id, workspace_id);

ALTER TABLE workspaces
  ADD COLUMN sort_order bigint NOT NULL DEFAULT 0,
  ADD COLUMN details    text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE workspaces_closed
  ADD COLUMN sort_order bigint NOT NULL DEFAULT 0,
  ADD COLUMN details    text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE workflows
  ADD COLUMN hidden  bigint NOT NULL DEFAULT 0,
  ADD COLUMN details text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE workflows_closed
  ADD COLUMN hidden  bigint NOT NULL DEFAULT 0,
  ADD COLUMN details text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE workflow_steps
  ADD COLUMN details text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE workflow_steps_closed
  ADD COLUMN details text COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX workflow_steps_workflow ON workflow_steps (workflow_id, sort_key);

-- The dependency edges: the target waits for the source. The edges between
-- parents and children are the tasks' own. name is query.RelationKey.
CREATE TABLE task_relations (
  workspace_id   text COLLATE "C" NOT NULL,
  name           text COLLATE "C" NOT NULL,
  source_task_id text COLLATE "C" NOT NULL,
  target_task_id text COLLATE "C" NOT NULL,
  created_at     bigint,
  version        bigint NOT NULL,
  PRIMARY KEY (workspace_id, name)
);

CREATE INDEX task_relations_source ON task_relations (workspace_id, source_task_id, target_task_id);
CREATE INDEX task_relations_target ON task_relations (workspace_id, target_task_id, source_task_id);

CREATE TABLE task_relations_closed (
  workspace_id   text COLLATE "C" NOT NULL,
  name           text COLLATE "C" NOT NULL,
  source_task_id text COLLATE "C" NOT NULL,
  target_task_id text COLLATE "C" NOT NULL,
  created_at     bigint,
  version        bigint NOT NULL,
  valid_to       bigint NOT NULL,
  PRIMARY KEY (workspace_id, name, version)
);

CREATE INDEX task_relations_closed_source ON task_relations_closed (workspace_id, source_task_id, target_task_id, version);
CREATE INDEX task_relations_closed_target ON task_relations_closed (workspace_id, target_task_id, source_task_id, version);

-- sort_key is query.TransitionKey: the order in which pending moves are listed,
-- oldest first.
CREATE TABLE pending_transitions (
  workspace_id      text COLLATE "C" NOT NULL,
  id                text COLLATE "C" NOT NULL,
  sort_key          text COLLATE "C" NOT NULL,
  task_id           text COLLATE "C" NOT NULL,
  session_id        text COLLATE "C" NOT NULL,
  from_workflow_id  text COLLATE "C" NOT NULL,
  from_step_id      text COLLATE "C" NOT NULL,
  to_workflow_id    text COLLATE "C" NOT NULL,
  to_step_id        text COLLATE "C" NOT NULL,
  position          bigint NOT NULL,
  predicate         text COLLATE "C" NOT NULL,
  actor             text COLLATE "C" NOT NULL,
  requester         text COLLATE "C" NOT NULL,
  sender_session_id text COLLATE "C" NOT NULL,
  queued_at         bigint,
  expires_at        bigint,
  version           bigint NOT NULL,
  PRIMARY KEY (workspace_id, id)
);

CREATE UNIQUE INDEX pending_transitions_order ON pending_transitions (workspace_id, sort_key);
CREATE INDEX pending_transitions_task ON pending_transitions (workspace_id, task_id);
CREATE UNIQUE INDEX pending_transitions_session ON pending_transitions (workspace_id, session_id) WHERE session_id <> '';
CREATE INDEX pending_transitions_expiry ON pending_transitions (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE pending_transitions_closed (
  workspace_id      text COLLATE "C" NOT NULL,
  id                text COLLATE "C" NOT NULL,
  sort_key          text COLLATE "C" NOT NULL,
  task_id           text COLLATE "C" NOT NULL,
  session_id        text COLLATE "C" NOT NULL,
  from_workflow_id  text COLLATE "C" NOT NULL,
  from_step_id      text COLLATE "C" NOT NULL,
  to_workflow_id    text COLLATE "C" NOT NULL,
  to_step_id        text COLLATE "C" NOT NULL,
  position          bigint NOT NULL,
  predicate         text COLLATE "C" NOT NULL,
  actor             text COLLATE "C" NOT NULL,
  requester         text COLLATE "C" NOT NULL,
  sender_session_id text COLLATE "C" NOT NULL,
  queued_at         bigint,
  expires_at        bigint,
  version           bigint NOT NULL,
  valid_to          bigint NOT NULL,
  PRIMARY KEY (workspace_id, sort_key, version)
);

-- The moves that happened. Rows are only ever added, and outlive their task.
CREATE TABLE step_transitions (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace_id     text COLLATE "C" NOT NULL,
  task_id          text COLLATE "C" NOT NULL,
  from_workflow_id text COLLATE "C" NOT NULL,
  from_step_id     text COLLATE "C" NOT NULL,
  to_workflow_id   text COLLATE "C" NOT NULL,
  to_step_id       text COLLATE "C" NOT NULL,
  cause            text COLLATE "C" NOT NULL,
  actor            text COLLATE "C" NOT NULL,
  occurred_at      bigint NOT NULL,
  version          bigint NOT NULL
);

CREATE INDEX step_transitions_task ON step_transitions (task_id, id);
CREATE INDEX step_transitions_from ON step_transitions (from_workflow_id);
CREATE INDEX step_transitions_to ON step_transitions (to_workflow_id);

CREATE TABLE repositories (
  workspace_id           text COLLATE "C" NOT NULL,
  id                     text COLLATE "C" NOT NULL,
  name                   text COLLATE "C" NOT NULL,
  default_branch         text COLLATE "C" NOT NULL,
  source_type            text COLLATE "C" NOT NULL,
  provider               text COLLATE "C" NOT NULL,
  provider_repository_id text COLLATE "C" NOT NULL,
  provider_host          text COLLATE "C" NOT NULL,
  provider_owner         text COLLATE "C" NOT NULL,
  provider_name          text COLLATE "C" NOT NULL,
  provider_scope         text COLLATE "C" NOT NULL,
  remote_url             text COLLATE "C" NOT NULL,
  created_at             bigint,
  updated_at             bigint,
  version                bigint NOT NULL,
  PRIMARY KEY (workspace_id, id)
);

CREATE TABLE repositories_closed (
  workspace_id           text COLLATE "C" NOT NULL,
  id                     text COLLATE "C" NOT NULL,
  name                   text COLLATE "C" NOT NULL,
  default_branch         text COLLATE "C" NOT NULL,
  source_type            text COLLATE "C" NOT NULL,
  provider               text COLLATE "C" NOT NULL,
  provider_repository_id text COLLATE "C" NOT NULL,
  provider_host          text COLLATE "C" NOT NULL,
  provider_owner         text COLLATE "C" NOT NULL,
  provider_name          text COLLATE "C" NOT NULL,
  provider_scope         text COLLATE "C" NOT NULL,
  remote_url             text COLLATE "C" NOT NULL,
  created_at             bigint,
  updated_at             bigint,
  version                bigint NOT NULL,
  valid_to               bigint NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
);

-- Profiles are the instance's: they have no workspace and no version.
CREATE TABLE agent_profiles (
  id           text COLLATE "C" NOT NULL PRIMARY KEY,
  agent_id     text COLLATE "C" NOT NULL,
  display_name text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  model        text COLLATE "C" NOT NULL,
  mode         text COLLATE "C" NOT NULL,
  created_at   bigint,
  updated_at   bigint
);

CREATE TABLE executor_profiles (
  id            text COLLATE "C" NOT NULL PRIMARY KEY,
  display_name  text COLLATE "C" NOT NULL,
  executor_type text COLLATE "C" NOT NULL,
  created_at    bigint,
  updated_at    bigint
);
