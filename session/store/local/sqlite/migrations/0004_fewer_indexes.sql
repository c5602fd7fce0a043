-- An execution is written twice, and each index is a page more each time. The table has
-- about a thousand rows, which are read rarely and then as a whole.
DROP INDEX workflow_executions_open;
DROP INDEX workflow_executions_newest;
DROP INDEX workflow_executions_over;
DROP INDEX workflow_executions_at_source;
CREATE INDEX workflow_executions_at_source ON workflow_executions (source_execution_id) WHERE source_execution_id IS NOT NULL;
