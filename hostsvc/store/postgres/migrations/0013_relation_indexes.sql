-- Edges are found by either end from the index alone: a planner that must look up the
-- rest of each row in the table reads all edges of the workspace instead.
DROP INDEX task_relations_source;
DROP INDEX task_relations_target;
CREATE INDEX task_relations_source ON task_relations (workspace_id, source_task_id, target_task_id, version, created_at);
CREATE INDEX task_relations_target ON task_relations (workspace_id, target_task_id, source_task_id, version, created_at);

DROP INDEX task_relations_closed_source;
DROP INDEX task_relations_closed_target;
CREATE INDEX task_relations_closed_source ON task_relations_closed (workspace_id, source_task_id, target_task_id, version, valid_to, created_at);
CREATE INDEX task_relations_closed_target ON task_relations_closed (workspace_id, target_task_id, source_task_id, version, valid_to, created_at);
