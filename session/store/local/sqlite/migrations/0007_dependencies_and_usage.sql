-- Which tasks of its project are to be done before a task starts. They form no cycle.
CREATE TABLE task_dependencies (
	task_id    TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
	depends_on TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
	PRIMARY KEY (task_id, depends_on),
	CHECK (task_id <> depends_on)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_dependencies_of ON task_dependencies (depends_on);
-- What the agent of an execution reported that it used, JSON: NULL if it reported nothing, or has not ended.
ALTER TABLE executions ADD COLUMN usage TEXT;
-- Why the branch was last not pushed to the remote of the config; NULL if it was, or was not to be.
ALTER TABLE attempts ADD COLUMN push_error TEXT;
