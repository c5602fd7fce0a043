-- Ids are UUIDs. Times are RFC 3339 in UTC with six decimals, so that they sort as text.

CREATE TABLE projects (
	id         TEXT PRIMARY KEY,
	name       TEXT NOT NULL,
	root       INTEGER NOT NULL,           -- 1: the project root itself
	listed     INTEGER NOT NULL DEFAULT 1, -- 0: no longer in the config
	created_at TEXT NOT NULL,
	updated_at TEXT NOT NULL
) STRICT;
-- The root has one row, whatever its name: its folder may be renamed. Others are known by name.
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
	inputs        TEXT, -- values of the workflow's inputs, a JSON object; NULL means none
	-- Who leads the agents of its attempts through its workflow: one agent itself, or a server.
	lead          TEXT NOT NULL DEFAULT 'agent' CHECK (lead IN ('agent', 'server')),
	labels        TEXT NOT NULL DEFAULT '', -- separated by blanks, sorted
	priority      TEXT NOT NULL DEFAULT 'normal' CHECK (priority IN ('low', 'normal', 'high')),
	-- Whether servers may start it: 0 if a caller without the right to start agents created or changed it.
	auto_start    INTEGER NOT NULL DEFAULT 1,
	identity      TEXT NOT NULL, -- of the caller that created it
	caller_group  TEXT NOT NULL, -- of the same caller; '' means none
	deleting_at   TEXT,          -- since when its worktrees are being removed, before it is deleted
	created_at    TEXT NOT NULL,
	updated_at    TEXT NOT NULL,
	CHECK ((job_name IS NULL) = (workflow_name IS NULL))
) STRICT;
CREATE INDEX tasks_newest ON tasks (project_id, created_at DESC, id);
CREATE INDEX tasks_newest_of_status ON tasks (project_id, status, created_at DESC, id);
CREATE INDEX tasks_deleting ON tasks (deleting_at) WHERE deleting_at IS NOT NULL;

-- The tasks that a task depends on, which are of the same project and must be done before it starts.
-- They form no cycle.
CREATE TABLE task_dependencies (
	task_id    TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
	depends_on TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
	PRIMARY KEY (task_id, depends_on),
	CHECK (task_id <> depends_on)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_dependencies_of ON task_dependencies (depends_on);

-- The number of tasks of each status and creator, as a caller may see only some: counting them for each
-- list would cost more than its page does. Triggers maintain it.
CREATE TABLE task_counts (
	project_id   TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
	status       TEXT NOT NULL,
	identity     TEXT NOT NULL,
	caller_group TEXT NOT NULL,
	tasks        INTEGER NOT NULL,
	PRIMARY KEY (project_id, status, identity, caller_group)
) STRICT, WITHOUT ROWID;
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
	error               TEXT,          -- why its last execution failed, if known
	landed              TEXT NOT NULL DEFAULT '' CHECK (landed IN ('', 'conflicts', 'merged')), -- what became of its branch
	push_error          TEXT,          -- why its branch was last not pushed to the remote of the config; NULL if it was, or was not to be
	workflow_session_id TEXT,          -- of the workflow that its agent runs, 8 hex
	workflow_status     TEXT,          -- active, completed or aborted
	workflow_step       TEXT,
	-- What the server that leads its agents keeps, JSON; NULL if the attempt has one agent. Its executions
	-- are then those of the leader, and one for each agent of a step.
	run                 TEXT,
	trace               TEXT NOT NULL DEFAULT '', -- the traceparent of what it belongs to; '' if nothing was exported when it was made
	identity            TEXT NOT NULL, -- of the caller that started it
	caller_group        TEXT NOT NULL, -- of the same caller; '' means none
	-- The machine that has its worktrees, and the project folder there: '' in a store of one machine, and
	-- until a machine has taken the attempt.
	machine_id          TEXT NOT NULL DEFAULT '',
	machine_name        TEXT NOT NULL DEFAULT '',
	root                TEXT NOT NULL DEFAULT '',
	created_at          TEXT NOT NULL,
	updated_at          TEXT NOT NULL
) STRICT;
CREATE INDEX attempts_newest ON attempts (task_id, created_at DESC, id);
CREATE INDEX attempts_newest_of_all ON attempts (created_at DESC, id);
CREATE INDEX attempts_branch ON attempts (branch);
CREATE INDEX attempts_open ON attempts (task_id) WHERE state IN ('waiting', 'starting', 'running');

CREATE TABLE attempt_repos (
	attempt_id    TEXT NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
	position      INTEGER NOT NULL,
	repo_id       TEXT NOT NULL,
	repo_name     TEXT NOT NULL,
	repo_path     TEXT NOT NULL,
	target_branch TEXT NOT NULL,
	base_commit   TEXT, -- set when the worktree is created
	worktree      TEXT NOT NULL, -- absolute
	PRIMARY KEY (attempt_id, position),
	UNIQUE (attempt_id, repo_id)
) STRICT;

-- What other machines can read of an attempt.
CREATE TABLE attempt_reports (
	attempt_id TEXT PRIMARY KEY REFERENCES attempts (id) ON DELETE CASCADE,
	output     TEXT, -- the last entries that its agents wrote, JSON
	output_at  TEXT,
	diff       TEXT, -- at the end of its last execution, JSON
	diff_at    TEXT
) STRICT;

-- Comments on lines of an attempt's diff that its agent has not received yet. Those that are queued are in
-- its queued follow-up.
CREATE TABLE attempt_comments (
	id         TEXT PRIMARY KEY,
	attempt_id TEXT NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
	repo_id    TEXT NOT NULL,
	file       TEXT NOT NULL,
	line       INTEGER NOT NULL,
	side       TEXT NOT NULL CHECK (side IN ('new', 'old')), -- old: line is that of the file before the attempt
	quote      TEXT NOT NULL, -- the line when the comment was written
	text       TEXT NOT NULL,
	queued     INTEGER NOT NULL DEFAULT 0,
	identity   TEXT NOT NULL,
	created_at TEXT NOT NULL
) STRICT;
CREATE INDEX attempt_comments_of ON attempt_comments (attempt_id);

-- A session is a conversation with the agent; it exists from the first start of the process. It has at
-- most one follow-up queued.
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

-- An execution is one process of an agent: the first of an attempt, a follow-up, or that for a step of a run;
-- or the leader of a run. seq gives their order, whatever the clock says.
CREATE TABLE executions (
	seq           INTEGER PRIMARY KEY AUTOINCREMENT,
	id            TEXT NOT NULL UNIQUE,
	attempt_id    TEXT NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
	log_id        TEXT NOT NULL, -- the same for all that write to one log: the attempt, or the agent of a step
	workflow_session_id TEXT,    -- of the step, 8 hex; NULL if it is not for a step of a run
	step_id       TEXT,
	session_id    TEXT REFERENCES sessions (id) ON DELETE CASCADE, -- NULL before the process was started, and for a step
	follow_up     INTEGER NOT NULL,
	prompt        TEXT NOT NULL, -- all that the agent receives
	executor      TEXT NOT NULL,
	variant       TEXT,
	contained     TEXT NOT NULL DEFAULT '', -- under what its program was started; '' if it was not contained
	conversation  TEXT, -- the name that its program gave to it
	limited_until TEXT, -- set if a limit of the provider ended it
	over_limit    INTEGER NOT NULL DEFAULT 0, -- whether a limit of its step ended it
	state         TEXT NOT NULL CHECK (state IN ('waiting', 'starting', 'running', 'completed', 'failed', 'stopped', 'interrupted')),
	owner         TEXT, -- the server that leads it
	stop_asked    TEXT, -- when that server, or its successor, was asked to stop it
	pid           INTEGER,
	exit_code     INTEGER,
	final_message TEXT,
	error         TEXT, -- why it failed; attempts has that of the newest execution
	-- Where it ran, as in attempts.
	machine_id    TEXT NOT NULL DEFAULT '',
	machine_name  TEXT NOT NULL DEFAULT '',
	root          TEXT NOT NULL DEFAULT '',
	created_at    TEXT NOT NULL,
	started_at    TEXT,
	ended_at      TEXT,
	CHECK (stop_asked IS NULL OR state <> 'waiting'),
	CHECK ((step_id IS NULL) = (workflow_session_id IS NULL))
) STRICT;
CREATE INDEX executions_of ON executions (attempt_id, step_id, seq);
CREATE INDEX executions_of_session ON executions (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX executions_state ON executions (state, seq);
-- An attempt has at most one of its own that has not ended.
CREATE UNIQUE INDEX executions_one_open ON executions (attempt_id) WHERE step_id IS NULL AND state IN ('waiting', 'starting', 'running');

-- What the executions that ran used, in the order in which they ended. It stays when their task is deleted.
CREATE TABLE usages (
	seq          INTEGER PRIMARY KEY,
	execution_id TEXT NOT NULL,
	attempt_id   TEXT NOT NULL,
	executor     TEXT NOT NULL, -- of the attempt
	micro_usd    INTEGER,       -- its cost; NULL if it is unknown
	-- NULL if its agent reported nothing.
	input_tokens  INTEGER,
	cached_tokens INTEGER,
	output_tokens INTEGER,
	turns         INTEGER,
	-- The conversation of which the agent reports totals, and these, JSON by model; NULL if it ended before that.
	thread       TEXT,
	totals       TEXT,
	ended_at     TEXT NOT NULL
) STRICT;
CREATE INDEX usages_of ON usages (attempt_id, seq);
CREATE INDEX usages_cost ON usages (micro_usd);

-- The results of calls with a request_id.
CREATE TABLE requests (
	identity    TEXT NOT NULL,
	tool        TEXT NOT NULL,
	request_id  TEXT NOT NULL,
	args_digest TEXT NOT NULL,
	result      TEXT NOT NULL, -- the id of what was created
	created_at  TEXT NOT NULL,
	PRIMARY KEY (identity, tool, request_id)
) STRICT;
CREATE INDEX requests_oldest ON requests (created_at);

-- Executions of workflows at other systems; those of agents are in executions. One that is not over has a row of
-- work, of the kind remote, with the progress. A row is written twice, and an index costs a page more each time: the
-- table has about a thousand rows, which are read rarely and then as a whole.
CREATE TABLE workflow_executions (
	id                  TEXT PRIMARY KEY,
	identity            TEXT NOT NULL, -- of the caller, the only one that sees it
	source              TEXT NOT NULL,
	workflow_id         TEXT NOT NULL,
	workflow_name       TEXT NOT NULL,
	async               INTEGER NOT NULL,
	performed           INTEGER NOT NULL, -- 1: an agent or a person performs its steps at the source
	-- waiting: nothing was sent; starting: its request may have been sent; running: the source has given
	-- it an id; or how it ended.
	state               TEXT NOT NULL CHECK (state IN ('waiting', 'starting', 'running', 'completed', 'failed', 'cancelled', 'timed_out', 'unknown')),
	source_execution_id TEXT,
	status_supported    INTEGER NOT NULL, -- 0: its source reports nothing more about it
	timeout             INTEGER NOT NULL, -- nanoseconds; 0 means none
	deadline            TEXT,
	trace               TEXT NOT NULL DEFAULT '', -- the traceparent of what it belongs to; '' if nothing was exported then
	started_at          TEXT NOT NULL,
	ended_at            TEXT,
	error               TEXT,
	progress            TEXT, -- at the end, JSON
	result              TEXT, -- JSON
	CHECK ((state IN ('waiting', 'starting', 'running')) = (ended_at IS NULL)),
	CHECK (state <> 'running' OR status_supported = 0 OR source_execution_id IS NOT NULL)
) STRICT;
CREATE INDEX workflow_executions_at_source ON workflow_executions (source_execution_id) WHERE source_execution_id IS NOT NULL;

-- Calls of tools that take long: tasks of MCP.
CREATE TABLE long_calls (
	id         TEXT PRIMARY KEY,
	key        TEXT NOT NULL, -- what it is about
	identity   TEXT NOT NULL, -- of the caller, the only one that sees it
	tool       TEXT NOT NULL,
	work       TEXT NOT NULL, -- how the work is looked at, JSON
	status     TEXT NOT NULL CHECK (status IN ('working', 'completed', 'cancelled')),
	result     TEXT,          -- that of the call, JSON
	created_at TEXT NOT NULL,
	ended_at   TEXT,
	CHECK ((status = 'working') = (ended_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX long_calls_working ON long_calls (identity, key) WHERE ended_at IS NULL;
CREATE INDEX long_calls_ended ON long_calls (ended_at) WHERE ended_at IS NOT NULL;

-- Sessions of workflows, of all roots of the project: the project itself and the workspaces of attempts. (The table
-- sessions has the conversations of agents.)
CREATE TABLE workflow_sessions (
	id         TEXT PRIMARY KEY, -- 8 hex
	revision   INTEGER NOT NULL, -- each transition replaces one by a higher one, and fails if another was faster
	root       TEXT NOT NULL,    -- the checkout or workspace in which it was begun
	parent     TEXT NOT NULL,    -- a session, which may have been removed; '': none
	job        TEXT NOT NULL,
	workflow   TEXT NOT NULL,
	step       TEXT NOT NULL,    -- the current one
	status     TEXT NOT NULL CHECK (status IN ('active', 'completed', 'aborted')),
	goal       TEXT NOT NULL,
	identity   TEXT NOT NULL,
	moved_by   TEXT NOT NULL,    -- the process that moved it last over a connection; '': the last move came without one
	attempt_id TEXT NOT NULL,    -- in whose workspace it was begun, which may have been deleted; '': the project itself
	machine_id TEXT NOT NULL,    -- the place that moved it last; '' in a store of one machine
	machine    TEXT NOT NULL,
	place      TEXT NOT NULL,
	definition TEXT NOT NULL,    -- the hash of that with which it goes on; '': none is stored
	pinned     TEXT NOT NULL,    -- that with which it began
	waiting    TEXT NOT NULL,    -- what may wait for a person, JSON; '': nothing
	branch     TEXT NOT NULL,    -- the git branch that is made for it; '': none is
	failed_tries INTEGER NOT NULL, -- of its steps' checks and reviews, with those that were withdrawn
	started_at TEXT NOT NULL,
	updated_at TEXT NOT NULL,
	frame      TEXT NOT NULL     -- the state without its lists, JSON
) STRICT;
CREATE INDEX workflow_sessions_of ON workflow_sessions (identity, attempt_id, status, updated_at DESC, id);
CREATE INDEX workflow_sessions_newest ON workflow_sessions (started_at DESC, id, status) WHERE attempt_id = '';
CREATE INDEX workflow_sessions_in ON workflow_sessions (parent) WHERE parent <> '';
CREATE INDEX workflow_sessions_at ON workflow_sessions (attempt_id) WHERE attempt_id <> '';
CREATE INDEX workflow_sessions_waiting ON workflow_sessions (identity) WHERE waiting <> '';
CREATE UNIQUE INDEX workflow_sessions_on ON workflow_sessions (branch) WHERE branch <> '' AND status = 'active';

-- The elements of the lists of a session: progress of steps, withdrawn progress, replies, its long texts by their
-- hashes, and what is handed in for a person to judge.
CREATE TABLE session_parts (
	session_id TEXT NOT NULL REFERENCES workflow_sessions (id) ON DELETE CASCADE,
	kind       TEXT NOT NULL CHECK (kind IN ('step', 'withdrawal', 'reply', 'text', 'judged')),
	key        TEXT NOT NULL,
	position   INTEGER NOT NULL,
	body       TEXT NOT NULL, -- JSON
	PRIMARY KEY (session_id, kind, key)
) STRICT;

-- The calls with a request_id. The reply is a part of the session, as long as that keeps it.
CREATE TABLE session_requests (
	key        TEXT PRIMARY KEY, -- a digest of identity, tool and request_id
	session_id TEXT NOT NULL REFERENCES workflow_sessions (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX session_requests_of ON session_requests (session_id);

-- What processes of the project are to do, now or at some time: each kind has a handler in package work.
CREATE TABLE work (
	kind         TEXT NOT NULL,
	key          TEXT NOT NULL,
	about        TEXT,             -- for the handler, JSON
	place        TEXT NOT NULL,    -- the only place where it may be done, a machine and a root; '': anywhere
	due          REAL NOT NULL,    -- nobody begins before this time; like until, in seconds since 1970 by unixepoch('subsec')
	-- Who does it: a process, with what makes each of its claims unique. Until the time, which the runner renews, or
	-- its end, which others at its place notice at once, nobody else does it. '': nobody does it, and until is 0.
	runner       TEXT NOT NULL,
	runner_place TEXT NOT NULL,    -- '' in a store of one machine
	until        REAL NOT NULL,
	claims       INTEGER NOT NULL, -- how often it was begun since it was put
	stop         INTEGER NOT NULL, -- 1: its runner is asked to stop
	progress     TEXT,             -- JSON
	result       TEXT,             -- JSON; NULL until it is done
	PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

-- Schedules start runs of workflows at their due times. Each has a row of work, of the kind schedule.
CREATE TABLE schedules (
	id              TEXT PRIMARY KEY,
	name            TEXT NOT NULL UNIQUE,
	cron            TEXT NOT NULL,
	zone            TEXT NOT NULL, -- IANA name
	args            TEXT NOT NULL, -- of run_workflow, JSON
	overlap         TEXT NOT NULL CHECK (overlap IN ('skip', 'queue_one', 'allow')),
	catch_up        TEXT NOT NULL CHECK (catch_up IN ('latest', 'skip', 'all')),
	catch_up_within INTEGER NOT NULL, -- nanoseconds
	pause_after     INTEGER NOT NULL, -- failed runs in a row; 0: never
	paused          INTEGER NOT NULL,
	resumed_at      TEXT NOT NULL,    -- failures of runs that were due earlier do not count
	next            TEXT NOT NULL,    -- the first due time without a row in due_times
	refusals        TEXT,             -- why machines could not start the run of the next due time, JSON
	identity        TEXT NOT NULL,    -- of the caller that made it
	caller_group    TEXT NOT NULL,
	created_at      TEXT NOT NULL
) STRICT;

-- What became of each due time: a run, or a skip with its reason.
CREATE TABLE due_times (
	schedule TEXT NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
	due_at   TEXT NOT NULL,
	until    TEXT,             -- the last one, if the row stands for several
	count    INTEGER NOT NULL, -- for how many it stands
	outcome  TEXT NOT NULL CHECK (outcome IN ('started', 'queued', 'skipped')),
	reason   TEXT NOT NULL,    -- of a skip, a sentence; '' otherwise
	run_id   TEXT,             -- an attempt, which may have been deleted
	PRIMARY KEY (schedule, due_at),
	CHECK ((outcome = 'started') = (run_id IS NOT NULL)),
	CHECK ((outcome = 'skipped') = (reason <> ''))
) STRICT;
CREATE INDEX due_times_of ON due_times (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX due_times_queued ON due_times (schedule) WHERE outcome = 'queued';

CREATE TABLE definitions (
	hash   TEXT PRIMARY KEY, -- the SHA-256 of data
	data   TEXT NOT NULL,
	put_at TEXT NOT NULL
) STRICT;

-- What was changed, for those who follow it.
CREATE TABLE changes (
	position INTEGER PRIMARY KEY, -- in the order of the commits, without gaps, since the newest one is never removed
	kind     TEXT NOT NULL, -- session, execution, task, attempt, schedule or work
	id       TEXT NOT NULL,
	at       TEXT NOT NULL  -- the start of the transaction
) STRICT;
