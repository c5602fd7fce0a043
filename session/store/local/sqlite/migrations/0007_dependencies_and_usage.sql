-- Which tasks of its project are to be done before a task starts. They form no cycle.
CREATE TABLE task_dependencies (
	task_id    TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
	depends_on TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
	PRIMARY KEY (task_id, depends_on),
	CHECK (task_id <> depends_on)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_dependencies_of ON task_dependencies (depends_on);
-- Why the branch was last not pushed to the remote of the config; NULL if it was, or was not to be.
ALTER TABLE attempts ADD COLUMN push_error TEXT;
-- Whether servers may start it: 0 if somebody without the right to start agents has made or changed it.
ALTER TABLE tasks ADD COLUMN auto_start INTEGER NOT NULL DEFAULT 1;
UPDATE tasks SET auto_start = 0 WHERE identity <> 'local';
-- What the executions that ran used, in the order in which they ended. It stays when their task is deleted.
CREATE TABLE usages (
	seq          INTEGER PRIMARY KEY,
	execution_id TEXT NOT NULL,
	attempt_id   TEXT NOT NULL,
	executor     TEXT NOT NULL, -- of the attempt
	usage        TEXT,          -- as its agent reported it, JSON; NULL if it reported nothing
	ended_at     TEXT NOT NULL
) STRICT;
CREATE INDEX usages_of ON usages (attempt_id, seq);
INSERT INTO usages (execution_id, attempt_id, executor, ended_at)
	SELECT e.id, a.id, a.executor, e.ended_at FROM executions e JOIN attempts a ON a.id = e.attempt_id
	WHERE e.started_at IS NOT NULL AND e.ended_at IS NOT NULL ORDER BY e.ended_at, e.seq;
-- Why it failed; attempts has that of its newest execution.
ALTER TABLE executions ADD COLUMN error TEXT;
-- Comments on lines of an attempt's diff that its agent has not got yet. Those that are queued are in its queued follow-up.
CREATE TABLE attempt_comments (
	id         TEXT PRIMARY KEY,
	attempt_id TEXT NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
	repo_id    TEXT NOT NULL,
	file       TEXT NOT NULL,
	line       INTEGER NOT NULL,
	side       TEXT NOT NULL CHECK (side IN ('new', 'old')), -- old: line is that of the file before the attempt
	quote      TEXT NOT NULL, -- the line as it was
	text       TEXT NOT NULL,
	queued     INTEGER NOT NULL DEFAULT 0,
	identity   TEXT NOT NULL,
	created_at TEXT NOT NULL
) STRICT;
CREATE INDEX attempt_comments_of ON attempt_comments (attempt_id);
