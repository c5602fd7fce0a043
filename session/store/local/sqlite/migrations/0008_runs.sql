-- Who leads the agents of its attempts through its workflow: one agent itself, or a server.
ALTER TABLE tasks ADD COLUMN lead TEXT NOT NULL DEFAULT 'agent' CHECK (lead IN ('agent', 'server'));
-- What the server keeps that leads its agents, JSON; NULL if the attempt has one agent. Its executions are then those of the leader.
ALTER TABLE attempts ADD COLUMN run TEXT;
-- The processes of the agents that a leader has started, each for a step.
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
CREATE INDEX step_executions_of ON step_executions (attempt_id, seq);
CREATE INDEX step_executions_open ON step_executions (state) WHERE ended_at IS NULL;
