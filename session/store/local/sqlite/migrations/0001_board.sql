-- Ids are UUIDs. Times are RFC 3339 in UTC with six decimals, so that they sort
-- as text.
CREATE TABLE projects (
	id         TEXT PRIMARY KEY,
	name       TEXT NOT NULL,
	root       INTEGER NOT NULL,           -- 1: the project root itself
	listed     INTEGER NOT NULL DEFAULT 1, -- 0: no longer in the config
	created_at TEXT NOT NULL,
	updated_at TEXT NOT NULL
) STRICT;
-- The root is known by being it, for its folder may be renamed; others by name.
CREATE UNIQUE INDEX projects_root ON projects (root) WHERE root = 1;
CREATE UNIQUE INDEX projects_name ON projects (name) WHERE root = 0;

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
	updated_at    TEXT NOT NULL,
	CHECK ((job_name IS NULL) = (workflow_name IS NULL))
) STRICT;
CREATE INDEX tasks_newest ON tasks (project_id, created_at DESC, id);
CREATE INDEX tasks_newest_of_status ON tasks (project_id, status, created_at DESC, id);
CREATE INDEX tasks_deleting ON tasks (deleting_at) WHERE deleting_at IS NOT NULL;

-- How many tasks a project has of each status: counting them afresh would cost a
-- list more than its page does.
CREATE TABLE task_counts (
	project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
	status     TEXT NOT NULL,
	tasks      INTEGER NOT NULL,
	PRIMARY KEY (project_id, status)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER tasks_count_new AFTER INSERT ON tasks BEGIN
	INSERT INTO task_counts VALUES (new.project_id, new.status, 1)
		ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER tasks_count_gone AFTER DELETE ON tasks BEGIN
	UPDATE task_counts SET tasks = tasks - 1 WHERE project_id = old.project_id AND status = old.status;
END;
CREATE TRIGGER tasks_count_moved AFTER UPDATE OF project_id, status ON tasks BEGIN
	UPDATE task_counts SET tasks = tasks - 1 WHERE project_id = old.project_id AND status = old.status;
	INSERT INTO task_counts VALUES (new.project_id, new.status, 1)
		ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;

-- An attempt is a workspace: a worktree for each of its repos.
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
) STRICT;
CREATE INDEX attempts_newest ON attempts (task_id, created_at DESC, id);
CREATE INDEX attempts_branch ON attempts (branch);
CREATE INDEX attempts_open ON attempts (task_id) WHERE state IN ('waiting', 'starting', 'running');

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

-- A session is a conversation with the agent; it exists from the first start of
-- the process. It has at most one follow-up queued.
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
CREATE INDEX sessions_newest ON sessions (attempt_id, created_at DESC, id);

-- An execution is one run of the agent: the first, or a follow-up. Their order is
-- that of seq, whatever the clock says.
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
) STRICT;
CREATE INDEX executions_of ON executions (attempt_id, seq);
CREATE INDEX executions_of_session ON executions (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX executions_state ON executions (state, seq);
-- An attempt has one that has not ended, at most.
CREATE UNIQUE INDEX executions_one_open ON executions (attempt_id) WHERE state IN ('waiting', 'starting', 'running');

-- The results of calls with a request_id.
CREATE TABLE requests (
	identity    TEXT NOT NULL,
	tool        TEXT NOT NULL,
	request_id  TEXT NOT NULL,
	args_digest TEXT NOT NULL,
	result      TEXT NOT NULL, -- the id of what was made
	created_at  TEXT NOT NULL,
	PRIMARY KEY (identity, tool, request_id)
) STRICT;
CREATE INDEX requests_oldest ON requests (created_at);
