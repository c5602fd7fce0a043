-- Executions of workflows at other systems. The agents' are in executions, which is
-- older than the name.
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
	result              TEXT, -- JSON
	CHECK ((state IN ('waiting', 'starting', 'running')) = (ended_at IS NULL)),
	CHECK (state <> 'running' OR status_supported = 0 OR source_execution_id IS NOT NULL)
) STRICT;
CREATE INDEX workflow_executions_open ON workflow_executions (owner) WHERE ended_at IS NULL AND status_supported = 1;
CREATE INDEX workflow_executions_newest ON workflow_executions (identity, started_at DESC);
CREATE INDEX workflow_executions_at_source ON workflow_executions (source_execution_id);
CREATE INDEX workflow_executions_over ON workflow_executions (coalesce(ended_at, started_at)) WHERE ended_at IS NOT NULL OR status_supported = 0;

-- What the owner of something is asked to do with it by other processes.
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
CREATE INDEX owner_requests_asked ON owner_requests (kind, asked_at) WHERE state = 'asked';
