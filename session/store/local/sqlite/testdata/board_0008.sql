PRAGMA foreign_keys = OFF;
CREATE TABLE projects (
	id         TEXT PRIMARY KEY,
	name       TEXT NOT NULL,
	root       INTEGER NOT NULL,           -- 1: the project root itself
	listed     INTEGER NOT NULL DEFAULT 1, -- 0: no longer in the config
	created_at TEXT NOT NULL,
	updated_at TEXT NOT NULL
) STRICT;
CREATE TABLE repos (
	id         TEXT PRIMARY KEY,
	project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
	name       TEXT NOT NULL,
	path       TEXT NOT NULL, -- absolute
	listed     INTEGER NOT NULL DEFAULT 1,
	created_at TEXT NOT NULL,
	updated_at TEXT NOT NULL,
	UNIQUE (project_id, name)
) STRICT;
CREATE TABLE tasks (
	id            TEXT PRIMARY KEY,
	project_id    TEXT NOT NULL REFERENCES projects (id),
	title         TEXT NOT NULL,
	description   TEXT,
	status        TEXT NOT NULL CHECK (status IN ('todo', 'inprogress', 'inreview', 'done', 'cancelled')),
	job_name      TEXT,
	workflow_name TEXT,
	deleting_at   TEXT, -- since when its worktrees are being removed, so that it can be
	created_at    TEXT NOT NULL,
	updated_at    TEXT NOT NULL, identity TEXT NOT NULL DEFAULT 'local', caller_group TEXT NOT NULL DEFAULT '', auto_start INTEGER NOT NULL DEFAULT 1, lead TEXT NOT NULL DEFAULT 'agent' CHECK (lead IN ('agent', 'server')),
	CHECK ((job_name IS NULL) = (workflow_name IS NULL))
) STRICT;
CREATE TABLE attempts (
	id                  TEXT PRIMARY KEY,
	task_id             TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
	executor            TEXT NOT NULL,
	variant             TEXT,
	prompt              TEXT,          -- what is added to the task's title and description
	branch              TEXT NOT NULL, -- of its worktrees
	workspace           TEXT NOT NULL, -- the folder that the agent works in, absolute
	state               TEXT NOT NULL CHECK (state IN ('waiting', 'starting', 'running', 'completed', 'failed', 'stopped', 'interrupted')),
	error               TEXT,          -- why its last execution failed, where that is known
	workflow_session_id TEXT,          -- of the workflow that its agent runs, 8 hex
	workflow_status     TEXT,          -- active, completed or aborted
	workflow_step       TEXT,
	created_at          TEXT NOT NULL,
	updated_at          TEXT NOT NULL
, identity TEXT NOT NULL DEFAULT 'local', caller_group TEXT NOT NULL DEFAULT '', machine_id TEXT NOT NULL DEFAULT '', machine_name TEXT NOT NULL DEFAULT '', root TEXT NOT NULL DEFAULT '', push_error TEXT, run TEXT) STRICT;
CREATE TABLE attempt_repos (
	attempt_id    TEXT NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
	position      INTEGER NOT NULL,
	repo_id       TEXT NOT NULL,
	repo_name     TEXT NOT NULL,
	repo_path     TEXT NOT NULL,
	target_branch TEXT NOT NULL,
	base_commit   TEXT, -- once the worktree is made
	worktree      TEXT NOT NULL, -- absolute
	PRIMARY KEY (attempt_id, position),
	UNIQUE (attempt_id, repo_id)
) STRICT;
CREATE TABLE sessions (
	id             TEXT PRIMARY KEY,
	attempt_id     TEXT NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
	executor       TEXT NOT NULL,
	variant        TEXT,
	queued_prompt  TEXT,
	queued_variant TEXT,
	queued_at      TEXT,
	created_at     TEXT NOT NULL,
	updated_at     TEXT NOT NULL,
	CHECK ((queued_prompt IS NULL) = (queued_at IS NULL))
) STRICT;
CREATE TABLE executions (
	seq           INTEGER PRIMARY KEY AUTOINCREMENT,
	id            TEXT NOT NULL UNIQUE,
	attempt_id    TEXT NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
	session_id    TEXT REFERENCES sessions (id) ON DELETE CASCADE, -- null before the process was started
	follow_up     INTEGER NOT NULL,
	prompt        TEXT NOT NULL, -- all that the agent is given
	variant       TEXT,
	state         TEXT NOT NULL CHECK (state IN ('waiting', 'starting', 'running', 'completed', 'failed', 'stopped', 'interrupted')),
	owner         TEXT, -- the server that sees to it
	pid           INTEGER,
	exit_code     INTEGER,
	final_message TEXT,
	created_at    TEXT NOT NULL,
	started_at    TEXT,
	ended_at      TEXT
, machine_id TEXT NOT NULL DEFAULT '', machine_name TEXT NOT NULL DEFAULT '', root TEXT NOT NULL DEFAULT '', error TEXT) STRICT;
CREATE TABLE requests (
	identity    TEXT NOT NULL,
	tool        TEXT NOT NULL,
	request_id  TEXT NOT NULL,
	args_digest TEXT NOT NULL,
	result      TEXT NOT NULL, -- the id of what was made
	created_at  TEXT NOT NULL,
	PRIMARY KEY (identity, tool, request_id)
) STRICT;
CREATE TABLE workflow_executions (
	id                  TEXT PRIMARY KEY,
	owner               TEXT NOT NULL, -- the server that follows it
	identity            TEXT NOT NULL, -- of the caller; nobody else sees it
	source              TEXT NOT NULL,
	workflow_id         TEXT NOT NULL,
	workflow_name       TEXT NOT NULL,
	async               INTEGER NOT NULL,
	-- waiting: nothing was sent; starting: its request may have been sent; running:
	-- the source has given it an id; or how it ended.
	state               TEXT NOT NULL CHECK (state IN ('waiting', 'starting', 'running', 'completed', 'failed', 'cancelled', 'timed_out', 'unknown')),
	source_execution_id TEXT,
	status_supported    INTEGER NOT NULL, -- 0: nothing more will be learned of it
	timeout             INTEGER NOT NULL, -- nanoseconds; 0: none
	deadline            TEXT,
	started_at          TEXT NOT NULL,
	ended_at            TEXT,
	error               TEXT,
	progress            TEXT, -- at the end, JSON
	result              TEXT, performed INTEGER NOT NULL DEFAULT 0, -- JSON
	CHECK ((state IN ('waiting', 'starting', 'running')) = (ended_at IS NULL)),
	CHECK (state <> 'running' OR status_supported = 0 OR source_execution_id IS NOT NULL)
) STRICT;
CREATE TABLE owner_requests (
	id          TEXT PRIMARY KEY,
	kind        TEXT NOT NULL, -- of the target: session, execution, attempt
	target      TEXT NOT NULL,
	action      TEXT NOT NULL,
	arguments   TEXT,
	caller      TEXT NOT NULL,
	channel     TEXT NOT NULL,
	state       TEXT NOT NULL CHECK (state IN ('asked', 'taken', 'answered')),
	answer      TEXT, -- JSON
	asked_at    TEXT NOT NULL,
	taken_at    TEXT,
	answered_at TEXT
) STRICT;
CREATE TABLE task_counts (
	project_id   TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
	status       TEXT NOT NULL,
	identity     TEXT NOT NULL,
	caller_group TEXT NOT NULL,
	tasks        INTEGER NOT NULL,
	PRIMARY KEY (project_id, status, identity, caller_group)
) STRICT, WITHOUT ROWID;
CREATE TABLE attempt_reports (
	attempt_id TEXT PRIMARY KEY REFERENCES attempts (id) ON DELETE CASCADE,
	output     TEXT, -- the last entries that its agents wrote, JSON
	output_at  TEXT,
	diff       TEXT, -- at the end of its last execution, JSON
	diff_at    TEXT
) STRICT;
CREATE TABLE task_dependencies (
	task_id    TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
	depends_on TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
	PRIMARY KEY (task_id, depends_on),
	CHECK (task_id <> depends_on)
) STRICT, WITHOUT ROWID;
CREATE TABLE usages (
	seq          INTEGER PRIMARY KEY,
	execution_id TEXT NOT NULL,
	attempt_id   TEXT NOT NULL,
	executor     TEXT NOT NULL, -- of the attempt
	usage        TEXT,          -- as its agent reported it, JSON; NULL if it reported nothing
	ended_at     TEXT NOT NULL
) STRICT;
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
CREATE TABLE step_executions (
	seq           INTEGER PRIMARY KEY AUTOINCREMENT,
	id            TEXT NOT NULL UNIQUE,
	attempt_id    TEXT NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
	agent_id      TEXT NOT NULL, -- the same for all that write to one log
	session_id    TEXT NOT NULL, -- of the workflow, 8 hex
	step_id       TEXT NOT NULL,
	executor      TEXT NOT NULL,
	variant       TEXT,
	state         TEXT NOT NULL CHECK (state IN ('waiting', 'starting', 'running', 'completed', 'failed', 'stopped', 'interrupted')),
	conversation  TEXT, -- the name that its program gave to it
	limited_until TEXT, -- set if a limit of the provider ended it
	exit_code     INTEGER,
	final_message TEXT,
	error         TEXT,
	created_at    TEXT NOT NULL,
	started_at    TEXT,
	ended_at      TEXT,
	CHECK ((state IN ('waiting', 'starting', 'running')) = (ended_at IS NULL))
) STRICT;
INSERT INTO projects VALUES ('a910d28d-3402-4316-8d3d-ec96b2414cab', 'shop', 1, 1, '2026-03-01T11:00:00.123456Z', '2026-03-01T11:00:00.123456Z');
INSERT INTO repos VALUES ('15533559-2934-42aa-a5e9-2f33cd3cf7e2', 'a910d28d-3402-4316-8d3d-ec96b2414cab', 'shop', '/srv/shop', 1, '2026-03-01T11:00:00.123456Z', '2026-03-01T11:00:00.123456Z');
INSERT INTO tasks VALUES ('cd720ec3-5e9d-467c-bb43-92f435e6d06a', 'a910d28d-3402-4316-8d3d-ec96b2414cab', 'it''s one', NULL, 'inprogress', NULL, NULL, NULL, '2026-03-01T11:00:00.123456Z', '2026-03-01T11:00:00.123456Z', 'local', '', 1, 'agent');
INSERT INTO tasks VALUES ('e344e88a-e862-44b5-a5d3-9bf941aaf2e9', 'a910d28d-3402-4316-8d3d-ec96b2414cab', 'two', 'text', 'todo', 'j', 'w', NULL, '2026-03-01T11:00:00.123456Z', '2026-03-01T11:00:00.123456Z', 'local', '', 1, 'agent');
INSERT INTO attempts VALUES ('18ef679c-7f03-4539-8765-1d97a7d9530d', 'cd720ec3-5e9d-467c-bb43-92f435e6d06a', 'SCRIPTED', NULL, NULL, 'deepwork/x-0000', '/srv/w', 'waiting', NULL, NULL, NULL, NULL, '2026-03-01T11:00:00.123456Z', '2026-03-01T11:00:00.123456Z', 'local', '', '', '', '', NULL, NULL);
INSERT INTO attempt_repos VALUES ('18ef679c-7f03-4539-8765-1d97a7d9530d', 0, 'r1', 'web', '/srv/web', 'main', NULL, '/srv/w/web');
INSERT INTO sessions VALUES ('08d351b9-3c62-4d23-84ce-79a6f456e550', '18ef679c-7f03-4539-8765-1d97a7d9530d', 'SCRIPTED', NULL, NULL, NULL, NULL, '2026-03-01T11:00:00.123456Z', '2026-03-01T11:00:00.123456Z');
INSERT INTO executions VALUES (1, 'ab7bce8d-832b-46d5-8cec-eb1645e06a59', '18ef679c-7f03-4539-8765-1d97a7d9530d', '08d351b9-3c62-4d23-84ce-79a6f456e550', 0, 'do it', NULL, 'failed', 'server', NULL, 3, NULL, '2026-03-01T11:00:00.123456Z', '2026-03-01T11:00:00.123456Z', '2026-03-01T11:00:00.123456Z', '', '', '', 'it broke');
INSERT INTO executions VALUES (2, '33e6faaa-c721-4dab-8da0-a8407baf8178', '18ef679c-7f03-4539-8765-1d97a7d9530d', '08d351b9-3c62-4d23-84ce-79a6f456e550', 1, 'more', NULL, 'waiting', NULL, NULL, NULL, NULL, '2026-03-01T11:00:00.123456Z', NULL, NULL, '', '', '', NULL);
INSERT INTO requests VALUES ('me', 'create_task', 'r', 'd', 'e344e88a-e862-44b5-a5d3-9bf941aaf2e9', '2026-03-01T11:00:00.123456Z');
INSERT INTO task_counts VALUES ('a910d28d-3402-4316-8d3d-ec96b2414cab', 'inprogress', 'local', '', 1);
INSERT INTO task_counts VALUES ('a910d28d-3402-4316-8d3d-ec96b2414cab', 'todo', 'local', '', 1);
INSERT INTO task_dependencies VALUES ('e344e88a-e862-44b5-a5d3-9bf941aaf2e9', 'cd720ec3-5e9d-467c-bb43-92f435e6d06a');
INSERT INTO usages VALUES (1, 'ab7bce8d-832b-46d5-8cec-eb1645e06a59', '18ef679c-7f03-4539-8765-1d97a7d9530d', 'SCRIPTED', NULL, '2026-03-01T11:00:00.123456Z');
CREATE UNIQUE INDEX projects_root ON projects (root) WHERE root = 1;
CREATE UNIQUE INDEX projects_name ON projects (name) WHERE root = 0;
CREATE INDEX tasks_newest ON tasks (project_id, created_at DESC, id);
CREATE INDEX tasks_newest_of_status ON tasks (project_id, status, created_at DESC, id);
CREATE INDEX tasks_deleting ON tasks (deleting_at) WHERE deleting_at IS NOT NULL;
CREATE INDEX attempts_newest ON attempts (task_id, created_at DESC, id);
CREATE INDEX attempts_branch ON attempts (branch);
CREATE INDEX attempts_open ON attempts (task_id) WHERE state IN ('waiting', 'starting', 'running');
CREATE INDEX sessions_newest ON sessions (attempt_id, created_at DESC, id);
CREATE INDEX executions_of ON executions (attempt_id, seq);
CREATE INDEX executions_of_session ON executions (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX executions_state ON executions (state, seq);
CREATE UNIQUE INDEX executions_one_open ON executions (attempt_id) WHERE state IN ('waiting', 'starting', 'running');
CREATE INDEX requests_oldest ON requests (created_at);
CREATE INDEX owner_requests_asked ON owner_requests (kind, asked_at) WHERE state = 'asked';
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
CREATE INDEX workflow_executions_at_source ON workflow_executions (source_execution_id) WHERE source_execution_id IS NOT NULL;
CREATE INDEX task_dependencies_of ON task_dependencies (depends_on);
CREATE INDEX usages_of ON usages (attempt_id, seq);
CREATE INDEX attempt_comments_of ON attempt_comments (attempt_id);
CREATE INDEX step_executions_of ON step_executions (attempt_id, seq);
CREATE INDEX step_executions_open ON step_executions (state) WHERE ended_at IS NULL;
PRAGMA application_id = 1685545572;
PRAGMA user_version = 8;
