-- Conversations. sort_key is the order in which rows are listed, see
-- query.SessionKey and its neighbours; it begins with an instant, so that bounds
-- of time are bounds of the key. Lists of v1 cross workspaces, so their indexes
-- don't begin with one, and an index that serves both worlds ends with it.

CREATE TABLE sessions (
  workspace_id        TEXT    NOT NULL,
  id                  TEXT    NOT NULL,
  sort_key            TEXT    NOT NULL,
  task_id             TEXT    NOT NULL,
  name                TEXT    NOT NULL,
  state               TEXT    NOT NULL,
  is_primary          INTEGER NOT NULL,
  agent_profile_id    TEXT    NOT NULL,
  profile_snapshot    TEXT    NOT NULL,
  executor_id         TEXT    NOT NULL,
  executor_profile_id TEXT    NOT NULL,
  resume_token        TEXT    NOT NULL,
  execution_id        TEXT    NOT NULL,
  route_generation    INTEGER NOT NULL,
  review_status       TEXT    NOT NULL,
  error_message       TEXT    NOT NULL,
  metadata            TEXT    NOT NULL,
  started_at          INTEGER,
  completed_at        INTEGER,
  updated_at          INTEGER,
  version             INTEGER NOT NULL,
  PRIMARY KEY (id, workspace_id)
) STRICT;

CREATE INDEX sessions_order ON sessions (workspace_id, sort_key);
CREATE INDEX sessions_state ON sessions (workspace_id, state, sort_key);
CREATE INDEX sessions_task ON sessions (task_id, sort_key, workspace_id);
CREATE INDEX sessions_all ON sessions (sort_key);

CREATE TABLE sessions_closed (
  workspace_id        TEXT    NOT NULL,
  id                  TEXT    NOT NULL,
  sort_key            TEXT    NOT NULL,
  task_id             TEXT    NOT NULL,
  name                TEXT    NOT NULL,
  state               TEXT    NOT NULL,
  is_primary          INTEGER NOT NULL,
  agent_profile_id    TEXT    NOT NULL,
  profile_snapshot    TEXT    NOT NULL,
  executor_id         TEXT    NOT NULL,
  executor_profile_id TEXT    NOT NULL,
  resume_token        TEXT    NOT NULL,
  execution_id        TEXT    NOT NULL,
  route_generation    INTEGER NOT NULL,
  review_status       TEXT    NOT NULL,
  error_message       TEXT    NOT NULL,
  metadata            TEXT    NOT NULL,
  started_at          INTEGER,
  completed_at        INTEGER,
  updated_at          INTEGER,
  version             INTEGER NOT NULL,
  valid_to            INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
) STRICT;

CREATE INDEX sessions_closed_order ON sessions_closed (workspace_id, sort_key);
CREATE INDEX sessions_closed_state ON sessions_closed (workspace_id, state, sort_key);
CREATE INDEX sessions_closed_task ON sessions_closed (task_id, sort_key, workspace_id);

-- Where a session's conversation ends: its last sequence, and for each kind of
-- author the last row's and the system markup that is open behind it. It is what
-- the next row is written from, and no part of any list.
CREATE TABLE session_ends (
  workspace_id TEXT    NOT NULL,
  session_id   TEXT    NOT NULL,
  sequence     INTEGER NOT NULL,
  user_last    INTEGER NOT NULL,
  user_markup  TEXT    NOT NULL,
  agent_last   INTEGER NOT NULL,
  agent_markup TEXT    NOT NULL,
  PRIMARY KEY (workspace_id, session_id)
) STRICT, WITHOUT ROWID;

-- Turns are in no list, so no version of them is kept. sort_key orders a
-- session's turns from the oldest to the newest.
CREATE TABLE turns (
  workspace_id         TEXT    NOT NULL,
  id                   TEXT    NOT NULL,
  sort_key             TEXT    NOT NULL,
  authoritative        INTEGER NOT NULL,
  session_id           TEXT    NOT NULL,
  task_id              TEXT    NOT NULL,
  execution_profile_id TEXT    NOT NULL,
  route_generation     INTEGER NOT NULL,
  metadata             TEXT    NOT NULL,
  referenced           INTEGER NOT NULL,
  started_at           INTEGER,
  completed_at         INTEGER,
  created_at           INTEGER,
  updated_at           INTEGER,
  version              INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id)
) STRICT;

CREATE INDEX turns_session ON turns (workspace_id, session_id, authoritative, sort_key);

-- request is 0 for a row that asks nobody, 1 for a request that is settled and 2
-- for one that is open; pending_id is the interaction's.
CREATE TABLE messages (
  workspace_id   TEXT    NOT NULL,
  id             TEXT    NOT NULL,
  sort_key       TEXT    NOT NULL,
  session_id     TEXT    NOT NULL,
  task_id        TEXT    NOT NULL,
  type           TEXT    NOT NULL,
  turn_id        TEXT    NOT NULL,
  request        INTEGER NOT NULL,
  pending_id     TEXT    NOT NULL,
  author_type    TEXT    NOT NULL,
  author_id      TEXT    NOT NULL,
  content        TEXT    NOT NULL,
  markup_before  TEXT    NOT NULL,
  requests_input INTEGER NOT NULL,
  metadata       TEXT    NOT NULL,
  sequence       INTEGER NOT NULL,
  created_at     INTEGER,
  updated_at     INTEGER,
  version        INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id)
) STRICT;

CREATE INDEX messages_order ON messages (workspace_id, sort_key);
CREATE INDEX messages_type ON messages (workspace_id, type, sort_key);
CREATE INDEX messages_session ON messages (session_id, sort_key, type, workspace_id);
CREATE INDEX messages_task ON messages (task_id, sort_key, type, workspace_id);
CREATE INDEX messages_all ON messages (sort_key, type);
CREATE INDEX messages_requests ON messages (workspace_id, session_id, turn_id, type, created_at, sequence) WHERE request > 0;
CREATE INDEX messages_pending ON messages (workspace_id, pending_id) WHERE pending_id <> '';

CREATE TABLE messages_closed (
  workspace_id   TEXT    NOT NULL,
  id             TEXT    NOT NULL,
  sort_key       TEXT    NOT NULL,
  session_id     TEXT    NOT NULL,
  task_id        TEXT    NOT NULL,
  type           TEXT    NOT NULL,
  turn_id        TEXT    NOT NULL,
  request        INTEGER NOT NULL,
  pending_id     TEXT    NOT NULL,
  author_type    TEXT    NOT NULL,
  author_id      TEXT    NOT NULL,
  content        TEXT    NOT NULL,
  markup_before  TEXT    NOT NULL,
  requests_input INTEGER NOT NULL,
  metadata       TEXT    NOT NULL,
  sequence       INTEGER NOT NULL,
  created_at     INTEGER,
  updated_at     INTEGER,
  version        INTEGER NOT NULL,
  valid_to       INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
) STRICT;

CREATE INDEX messages_closed_order ON messages_closed (workspace_id, sort_key);
CREATE INDEX messages_closed_type ON messages_closed (workspace_id, type, sort_key);
CREATE INDEX messages_closed_session ON messages_closed (session_id, sort_key, type, workspace_id);
CREATE INDEX messages_closed_task ON messages_closed (task_id, sort_key, type, workspace_id);

-- The projection of request rows. owed is 1 while the session owes an answer, by
-- the one predicate; row_version is the newest version of the rows, version the
-- commit that wrote the projection.
CREATE TABLE interactions (
  workspace_id TEXT    NOT NULL,
  id           TEXT    NOT NULL,
  sort_key     TEXT    NOT NULL,
  owed         INTEGER NOT NULL,
  kind         TEXT    NOT NULL,
  session_id   TEXT    NOT NULL,
  task_id      TEXT    NOT NULL,
  turn_id      TEXT    NOT NULL,
  status       TEXT    NOT NULL,
  body         TEXT    NOT NULL,
  created_at   INTEGER,
  updated_at   INTEGER,
  row_version  INTEGER NOT NULL,
  version      INTEGER NOT NULL,
  PRIMARY KEY (id, workspace_id)
) STRICT;

CREATE INDEX interactions_order ON interactions (workspace_id, kind, sort_key) WHERE owed = 1;
CREATE INDEX interactions_all ON interactions (kind, sort_key) WHERE owed = 1;
CREATE INDEX interactions_session ON interactions (session_id, owed, sort_key, workspace_id);
CREATE INDEX interactions_task ON interactions (task_id, owed, sort_key, workspace_id);

CREATE TABLE interactions_closed (
  workspace_id TEXT    NOT NULL,
  id           TEXT    NOT NULL,
  sort_key     TEXT    NOT NULL,
  owed         INTEGER NOT NULL,
  kind         TEXT    NOT NULL,
  session_id   TEXT    NOT NULL,
  task_id      TEXT    NOT NULL,
  turn_id      TEXT    NOT NULL,
  status       TEXT    NOT NULL,
  body         TEXT    NOT NULL,
  created_at   INTEGER,
  updated_at   INTEGER,
  row_version  INTEGER NOT NULL,
  version      INTEGER NOT NULL,
  valid_to     INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, id, version)
) STRICT;

CREATE INDEX interactions_closed_order ON interactions_closed (workspace_id, kind, sort_key) WHERE owed = 1;
CREATE INDEX interactions_closed_session ON interactions_closed (session_id, owed, sort_key, workspace_id);
CREATE INDEX interactions_closed_task ON interactions_closed (task_id, owed, sort_key, workspace_id);

-- What waits for somebody: the interactions that are owed and the pending
-- transitions. item is the kind and the ID; item_version is the version of what
-- the item is about.
CREATE TABLE inbox (
  workspace_id TEXT    NOT NULL,
  item         TEXT    NOT NULL,
  sort_key     TEXT    NOT NULL,
  id           TEXT    NOT NULL,
  kind         TEXT    NOT NULL,
  task_id      TEXT    NOT NULL,
  session_id   TEXT    NOT NULL,
  digest       BLOB    NOT NULL,
  created_at   INTEGER,
  item_version INTEGER NOT NULL,
  version      INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, item)
) STRICT;

CREATE INDEX inbox_order ON inbox (workspace_id, sort_key);
CREATE INDEX inbox_task ON inbox (workspace_id, task_id, sort_key);
CREATE INDEX inbox_session ON inbox (workspace_id, session_id, sort_key);

CREATE TABLE inbox_closed (
  workspace_id TEXT    NOT NULL,
  item         TEXT    NOT NULL,
  sort_key     TEXT    NOT NULL,
  id           TEXT    NOT NULL,
  kind         TEXT    NOT NULL,
  task_id      TEXT    NOT NULL,
  session_id   TEXT    NOT NULL,
  digest       BLOB    NOT NULL,
  created_at   INTEGER,
  item_version INTEGER NOT NULL,
  version      INTEGER NOT NULL,
  valid_to     INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, item, version)
) STRICT;

CREATE INDEX inbox_closed_order ON inbox_closed (workspace_id, sort_key);
CREATE INDEX inbox_closed_task ON inbox_closed (workspace_id, task_id, sort_key);
CREATE INDEX inbox_closed_session ON inbox_closed (workspace_id, session_id, sort_key);

CREATE TABLE code_stats (
  workspace_id         TEXT    NOT NULL,
  session_id           TEXT    NOT NULL,
  added_committed      INTEGER NOT NULL,
  deleted_committed    INTEGER NOT NULL,
  added_peak_pending   INTEGER NOT NULL,
  deleted_peak_pending INTEGER NOT NULL,
  committed_available  INTEGER NOT NULL,
  version              INTEGER NOT NULL,
  PRIMARY KEY (session_id, workspace_id)
) STRICT, WITHOUT ROWID;
