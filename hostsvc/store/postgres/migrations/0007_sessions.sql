-- Conversations. sort_key is the order in which rows are listed, see
-- query.SessionKey and its neighbours; it begins with an instant, so that bounds
-- of time are bounds of the key. Lists of v1 cross workspaces, so their indexes
-- don't begin with one, and an index that serves both worlds ends with it.

CREATE TABLE sessions (
  workspace_id        text COLLATE "C" NOT NULL,
  id                  text COLLATE "C" NOT NULL,
  sort_key            text COLLATE "C" NOT NULL,
  task_id             text COLLATE "C" NOT NULL,
  name                text COLLATE "C" NOT NULL,
  state               text COLLATE "C" NOT NULL,
  is_primary          bigint NOT NULL,
  agent_profile_id    text COLLATE "C" NOT NULL,
  profile_snapshot    text COLLATE "C" NOT NULL,
  executor_id         text COLLATE "C" NOT NULL,
  executor_profile_id text COLLATE "C" NOT NULL,
  resume_token        text COLLATE "C" NOT NULL,
  execution_id        text COLLATE "C" NOT NULL,
  route_generation    bigint NOT NULL,
  review_status       text COLLATE "C" NOT NULL,
  error_message       text COLLATE "C" NOT NULL,
  metadata            text COLLATE "C" NOT NULL,
  started_at          bigint,
  completed_at        bigint,
  updated_at          bigint,
  version             bigint NOT NULL,
  PRIMARY KEY (id, workspace_id)
);

CREATE INDEX sessions_order ON sessions (workspace_id, sort_key);
CREATE INDEX sessions_state ON sessions (workspace_id, state, sort_key);
CREATE INDEX sessions_task ON sessions (task_id, sort_key, workspace_id);
CREATE INDEX sessions_all ON sessions (sort_key);

CREATE TABLE sessions_closed (
  workspace_id        text COLLATE "C" NOT NULL,
  id                  text COLLATE "C" NOT NULL,
  sort_key            text COLLATE "C" NOT NULL,
  task_id             text COLLATE "C" NOT NULL,
  name                text COLLATE "C" NOT NULL,
  state               text COLLATE "C" NOT NULL,
  is_primary          bigint NOT NULL,
  agent_profile_id    text COLLATE "C" NOT NULL,
  profile_snapshot    text COLLATE "C" NOT NULL,
  executor_id         text COLLATE "C" NOT NULL,
  executor_profile_id text COLLATE "C" NOT NULL,
  resume_token        text COLLATE "C" NOT NULL,
  execution_id        text COLLATE "C" NOT NULL,
  route_generation    bigint NOT NULL,
  review_status       text COLLATE "C" NOT NULL,
  error_message       text COLLATE "C" NOT NULL,
  metadata            text COLLATE "C" NOT NULL,
  started_at          bigint,
  completed_at        bigint,
  updated_at          bigint,
  version             bigint NOT NULL,
  valid_to            bigint NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
);

CREATE INDEX sessions_closed_order ON sessions_closed (workspace_id, sort_key);
CREATE INDEX sessions_closed_state ON sessions_closed (workspace_id, state, sort_key);
CREATE INDEX sessions_closed_task ON sessions_closed (task_id, sort_key, workspace_id);

-- Where a session's conversation ends: its last sequence, and for each kind of
-- author the last row's and the system markup that is open behind it. It is what
-- the next row is written from, and no part of any list.
CREATE TABLE session_ends (
  workspace_id text COLLATE "C" NOT NULL,
  session_id   text COLLATE "C" NOT NULL,
  sequence     bigint NOT NULL,
  user_last    bigint NOT NULL,
  user_markup  text COLLATE "C" NOT NULL,
  agent_last   bigint NOT NULL,
  agent_markup text COLLATE "C" NOT NULL,
  PRIMARY KEY (workspace_id, session_id)
);

-- Turns are in no list, so no version of them is kept. sort_key orders a
-- session's turns from the oldest to the newest.
CREATE TABLE turns (
  workspace_id         text COLLATE "C" NOT NULL,
  id                   text COLLATE "C" NOT NULL,
  sort_key             text COLLATE "C" NOT NULL,
  authoritative        bigint NOT NULL,
  session_id           text COLLATE "C" NOT NULL,
  task_id              text COLLATE "C" NOT NULL,
  execution_profile_id text COLLATE "C" NOT NULL,
  route_generation     bigint NOT NULL,
  metadata             text COLLATE "C" NOT NULL,
  referenced           bigint NOT NULL,
  started_at           bigint,
  completed_at         bigint,
  created_at           bigint,
  updated_at           bigint,
  version              bigint NOT NULL,
  PRIMARY KEY (workspace_id, id)
);

CREATE INDEX turns_session ON turns (workspace_id, session_id, authoritative, sort_key);

-- request is 0 for a row that asks nobody, 1 for a request that is settled and 2
-- for one that is open; pending_id is the interaction's.
CREATE TABLE messages (
  workspace_id   text COLLATE "C" NOT NULL,
  id             text COLLATE "C" NOT NULL,
  sort_key       text COLLATE "C" NOT NULL,
  session_id     text COLLATE "C" NOT NULL,
  task_id        text COLLATE "C" NOT NULL,
  type           text COLLATE "C" NOT NULL,
  turn_id        text COLLATE "C" NOT NULL,
  request        bigint NOT NULL,
  pending_id     text COLLATE "C" NOT NULL,
  author_type    text COLLATE "C" NOT NULL,
  author_id      text COLLATE "C" NOT NULL,
  content        text COLLATE "C" NOT NULL,
  markup_before  text COLLATE "C" NOT NULL,
  requests_input bigint NOT NULL,
  metadata       text COLLATE "C" NOT NULL,
  sequence       bigint NOT NULL,
  created_at     bigint,
  updated_at     bigint,
  version        bigint NOT NULL,
  PRIMARY KEY (workspace_id, id)
);

CREATE INDEX messages_order ON messages (workspace_id, sort_key);
CREATE INDEX messages_type ON messages (workspace_id, type, sort_key);
CREATE INDEX messages_session ON messages (session_id, sort_key, type, workspace_id);
CREATE INDEX messages_task ON messages (task_id, sort_key, type, workspace_id);
CREATE INDEX messages_all ON messages (sort_key, type);
CREATE INDEX messages_requests ON messages (workspace_id, session_id, turn_id, type, created_at, sequence) WHERE request > 0;
CREATE INDEX messages_pending ON messages (workspace_id, pending_id) WHERE pending_id <> '';

CREATE TABLE messages_closed (
  workspace_id   text COLLATE "C" NOT NULL,
  id             text COLLATE "C" NOT NULL,
  sort_key       text COLLATE "C" NOT NULL,
  session_id     text COLLATE "C" NOT NULL,
  task_id        text COLLATE "C" NOT NULL,
  type           text COLLATE "C" NOT NULL,
  turn_id        text COLLATE "C" NOT NULL,
  request        bigint NOT NULL,
  pending_id     text COLLATE "C" NOT NULL,
  author_type    text COLLATE "C" NOT NULL,
  author_id      text COLLATE "C" NOT NULL,
  content        text COLLATE "C" NOT NULL,
  markup_before  text COLLATE "C" NOT NULL,
  requests_input bigint NOT NULL,
  metadata       text COLLATE "C" NOT NULL,
  sequence       bigint NOT NULL,
  created_at     bigint,
  updated_at     bigint,
  version        bigint NOT NULL,
  valid_to       bigint NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
);

CREATE INDEX messages_closed_order ON messages_closed (workspace_id, sort_key);
CREATE INDEX messages_closed_type ON messages_closed (workspace_id, type, sort_key);
CREATE INDEX messages_closed_session ON messages_closed (session_id, sort_key, type, workspace_id);
CREATE INDEX messages_closed_task ON messages_closed (task_id, sort_key, type, workspace_id);

-- The projection of request rows. owed is 1 while the session owes an answer, by
-- the one predicate; row_version is the newest version of the rows, version the
-- commit that wrote the projection.
CREATE TABLE interactions (
  workspace_id text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL,
  sort_key     text COLLATE "C" NOT NULL,
  owed         bigint NOT NULL,
  kind         text COLLATE "C" NOT NULL,
  session_id   text COLLATE "C" NOT NULL,
  task_id      text COLLATE "C" NOT NULL,
  turn_id      text COLLATE "C" NOT NULL,
  status       text COLLATE "C" NOT NULL,
  body         text COLLATE "C" NOT NULL,
  created_at   bigint,
  updated_at   bigint,
  row_version  bigint NOT NULL,
  version      bigint NOT NULL,
  PRIMARY KEY (id, workspace_id)
);

CREATE INDEX interactions_order ON interactions (workspace_id, kind, sort_key) WHERE owed = 1;
CREATE INDEX interactions_all ON interactions (kind, sort_key) WHERE owed = 1;
CREATE INDEX interactions_session ON interactions (session_id, owed, sort_key, workspace_id);
CREATE INDEX interactions_task ON interactions (task_id, owed, sort_key, workspace_id);

CREATE TABLE interactions_closed (
  workspace_id text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL,
  sort_key     text COLLATE "C" NOT NULL,
  owed         bigint NOT NULL,
  kind         text COLLATE "C" NOT NULL,
  session_id   text COLLATE "C" NOT NULL,
  task_id      text COLLATE "C" NOT NULL,
  turn_id      text COLLATE "C" NOT NULL,
  status       text COLLATE "C" NOT NULL,
  body         text COLLATE "C" NOT NULL,
  created_at   bigint,
  updated_at   bigint,
  row_version  bigint NOT NULL,
  version      bigint NOT NULL,
  valid_to     bigint NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
);

CREATE INDEX interactions_closed_order ON interactions_closed (workspace_id, kind, sort_key) WHERE owed = 1;
CREATE INDEX interactions_closed_session ON interactions_closed (session_id, owed, sort_key, workspace_id);
CREATE INDEX interactions_closed_task ON interactions_closed (task_id, owed, sort_key, workspace_id);

-- What waits for somebody: the interactions that are owed and the pending
-- transitions. item is the kind and the ID; item_version is the version of what
-- the item is about.
CREATE TABLE inbox (
  workspace_id text COLLATE "C" NOT NULL,
  item         text COLLATE "C" NOT NULL,
  sort_key     text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL,
  kind         text COLLATE "C" NOT NULL,
  task_id      text COLLATE "C" NOT NULL,
  session_id   text COLLATE "C" NOT NULL,
  digest       bytea NOT NULL,
  created_at   bigint,
  item_version bigint NOT NULL,
  version      bigint NOT NULL,
  PRIMARY KEY (workspace_id, item)
);

CREATE INDEX inbox_order ON inbox (workspace_id, sort_key);
CREATE INDEX inbox_task ON inbox (workspace_id, task_id, sort_key);
CREATE INDEX inbox_session ON inbox (workspace_id, session_id, sort_key);

CREATE TABLE inbox_closed (
  workspace_id text COLLATE "C" NOT NULL,
  item         text COLLATE "C" NOT NULL,
  sort_key     text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL,
  kind         text COLLATE "C" NOT NULL,
  task_id      text COLLATE "C" NOT NULL,
  session_id   text COLLATE "C" NOT NULL,
  digest       bytea NOT NULL,
  created_at   bigint,
  item_version bigint NOT NULL,
  version      bigint NOT NULL,
  valid_to     bigint NOT NULL,
  PRIMARY KEY (workspace_id, item, version)
);

CREATE INDEX inbox_closed_order ON inbox_closed (workspace_id, sort_key);
CREATE INDEX inbox_closed_task ON inbox_closed (workspace_id, task_id, sort_key);
CREATE INDEX inbox_closed_session ON inbox_closed (workspace_id, session_id, sort_key);

CREATE TABLE code_stats (
  workspace_id         text COLLATE "C" NOT NULL,
  session_id           text COLLATE "C" NOT NULL,
  added_committed      bigint NOT NULL,
  deleted_committed    bigint NOT NULL,
  added_peak_pending   bigint NOT NULL,
  deleted_peak_pending bigint NOT NULL,
  committed_available  bigint NOT NULL,
  version              bigint NOT NULL,
  PRIMARY KEY (session_id, workspace_id)
);
