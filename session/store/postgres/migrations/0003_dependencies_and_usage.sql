CREATE TABLE task_dependencies_all (
	scope      bigint NOT NULL DEFAULT scope(),
	task_id    string,
	depends_on string,
	CHECK (task_id <> depends_on),
	PRIMARY KEY (scope, task_id, depends_on),
	FOREIGN KEY (scope, task_id) REFERENCES tasks_all ON DELETE CASCADE,
	FOREIGN KEY (scope, depends_on) REFERENCES tasks_all ON DELETE CASCADE
);
CREATE INDEX task_dependencies_of ON task_dependencies_all (scope, depends_on);
-- What the agent of an execution reported that it used, JSON: NULL if it reported nothing, or has not ended.
ALTER TABLE executions_all ADD COLUMN usage string;
-- Why the branch was last not pushed to the remote of the config; NULL if it was, or was not to be.
ALTER TABLE attempts_all ADD COLUMN push_error string;
SELECT make_views();
