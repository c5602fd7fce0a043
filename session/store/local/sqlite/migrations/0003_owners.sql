-- Who made a task, and who started an attempt: a caller's identity and group, '' for
-- none. What was there before is the user's.
ALTER TABLE tasks ADD COLUMN identity TEXT NOT NULL DEFAULT 'local';
ALTER TABLE tasks ADD COLUMN caller_group TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN identity TEXT NOT NULL DEFAULT 'local';
ALTER TABLE attempts ADD COLUMN caller_group TEXT NOT NULL DEFAULT '';

-- Tasks are counted for each maker, as a caller may see only some.
DROP TRIGGER tasks_count_new;
DROP TRIGGER tasks_count_gone;
DROP TRIGGER tasks_count_moved;
DROP TABLE task_counts;
CREATE TABLE task_counts (
	project_id   TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
	status       TEXT NOT NULL,
	identity     TEXT NOT NULL,
	caller_group TEXT NOT NULL,
	tasks        INTEGER NOT NULL,
	PRIMARY KEY (project_id, status, identity, caller_group)
) STRICT, WITHOUT ROWID;
INSERT INTO task_counts SELECT project_id, status, identity, caller_group, count(*) FROM tasks GROUP BY 1, 2, 3, 4;
CREATE TRIGGER tasks_count_new AFTER INSERT ON tasks BEGIN
	INSERT INTO task_counts VALUES (new.project_id, new.status, new.identity, new.caller_group, 1)
		ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER tasks_count_gone AFTER DELETE ON tasks BEGIN
	UPDATE task_counts SET tasks = tasks - 1 WHERE (project_id, status, identity, caller_group) = (old.project_id, old.status, old.identity, old.caller_group);
END;
CREATE TRIGGER tasks_count_moved AFTER UPDATE OF project_id, status ON tasks BEGIN
	UPDATE task_counts SET tasks = tasks - 1 WHERE (project_id, status, identity, caller_group) = (old.project_id, old.status, old.identity, old.caller_group);
	INSERT INTO task_counts VALUES (new.project_id, new.status, new.identity, new.caller_group, 1)
		ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
