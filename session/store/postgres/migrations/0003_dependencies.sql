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
SELECT make_views();
