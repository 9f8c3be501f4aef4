-- The installation that created a task, '' for who isn't one and where that isn't
-- known: nobody owns such a task by v1 (domain.Owner). Of a task of before, the entry
-- of its creation tells, where the journal still has it. What closed versions say of
-- it decides nothing.
ALTER TABLE tasks ADD COLUMN creator_installation_id TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks_closed ADD COLUMN creator_installation_id TEXT NOT NULL DEFAULT '';
UPDATE tasks SET creator_installation_id = created.installation_id
  FROM (SELECT workspace_id, target_id, installation_id FROM journal WHERE event_type = 'task.created') AS created
  WHERE created.workspace_id = tasks.workspace_id AND created.target_id = tasks.id;
