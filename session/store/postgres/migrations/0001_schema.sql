-- What package postgres itself keeps. Each table has the rows of all projects of the schema; scope is
-- scopes.id. The board, below, has the names projects, sessions and requests.

CREATE TABLE scopes (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text NOT NULL UNIQUE,
	remote text NOT NULL,      -- of the repository, normalized; '' means unknown
	root_commit text NOT NULL, -- likewise
	pruned xid8,               -- the highest xid of a row that was removed from changes_all; NULL means none
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A place where the project is used: a machine and a folder.
CREATE TABLE places (
	scope bigint NOT NULL REFERENCES scopes,
	machine text NOT NULL,
	root text NOT NULL,
	host text NOT NULL,
	until timestamptz NOT NULL, -- when it counts as one where no process uses the project, unless one touches it before
	PRIMARY KEY (scope, machine, root)
);


-- The task board, executions and requests, for the statements of package sqlstore: the schema of package
-- sqlite says what tables and columns mean. The name of each table ends in _all, and it has the rows of all
-- projects; the view without that ending has those of the project that the transaction is for; tables of
-- package postgres itself must have other names than these. Functions have the names of those of SQLite.

CREATE DOMAIN string AS text COLLATE "C"; -- ids, and times that sort as text

CREATE FUNCTION max(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT greatest($1, $2)';
CREATE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT strpos($1, $2)';
CREATE FUNCTION json_valid(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
	PERFORM $1::json;
	RETURN TRUE;
EXCEPTION WHEN OTHERS THEN
	RETURN FALSE;
END $$;
CREATE FUNCTION julianday(text) RETURNS double precision LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
	RETURN extract(julian FROM $1::timestamptz);
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END $$;
CREATE FUNCTION unixepoch(text) RETURNS double precision LANGUAGE sql VOLATILE AS 'SELECT extract(epoch FROM clock_timestamp())::float8';
CREATE FUNCTION scope() RETURNS bigint LANGUAGE sql STABLE AS $$SELECT current_setting('deepwork.scope')::bigint$$;

CREATE TABLE projects_all (
	scope      bigint NOT NULL DEFAULT scope(),
	id         string,
	name       string NOT NULL,
	root       boolean NOT NULL,
	listed     boolean NOT NULL DEFAULT TRUE,
	created_at string NOT NULL,
	updated_at string NOT NULL,
	PRIMARY KEY (scope, id)
);
CREATE UNIQUE INDEX projects_root ON projects_all (scope) WHERE root;
CREATE UNIQUE INDEX projects_name ON projects_all (scope, name) WHERE NOT root;

CREATE TABLE repos_all (
	scope      bigint NOT NULL DEFAULT scope(),
	id         string,
	project_id string NOT NULL,
	name       string NOT NULL,
	path       string NOT NULL CHECK (path = ''), -- each machine has its own
	listed     boolean NOT NULL DEFAULT TRUE,
	created_at string NOT NULL,
	updated_at string NOT NULL,
	PRIMARY KEY (scope, id),
	UNIQUE (scope, project_id, name),
	FOREIGN KEY (scope, project_id) REFERENCES projects_all ON DELETE CASCADE
);

CREATE TABLE tasks_all (
	scope         bigint NOT NULL DEFAULT scope(),
	id            string,
	project_id    string NOT NULL,
	title         string NOT NULL,
	description   string,
	status        string NOT NULL CHECK (status IN ('todo', 'inprogress', 'inreview', 'done', 'cancelled')),
	job_name      string,
	workflow_name string,
	inputs        string,
	lead          string NOT NULL DEFAULT 'agent' CHECK (lead IN ('agent', 'server')),
	labels        string NOT NULL DEFAULT '',
	priority      string NOT NULL DEFAULT 'normal' CHECK (priority IN ('low', 'normal', 'high')),
	auto_start    boolean NOT NULL DEFAULT TRUE,
	identity      string NOT NULL,
	caller_group  string NOT NULL,
	deleting_at   string,
	created_at    string NOT NULL,
	updated_at    string NOT NULL,
	CHECK ((job_name IS NULL) = (workflow_name IS NULL)),
	PRIMARY KEY (scope, id),
	FOREIGN KEY (scope, project_id) REFERENCES projects_all
);
CREATE INDEX tasks_newest ON tasks_all (scope, project_id, created_at DESC, id);
CREATE INDEX tasks_newest_of_status ON tasks_all (scope, project_id, status, created_at DESC, id);
CREATE INDEX tasks_deleting ON tasks_all (scope, deleting_at) WHERE deleting_at IS NOT NULL;

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

CREATE TABLE task_counts_all (
	scope        bigint NOT NULL DEFAULT scope(),
	project_id   string,
	status       string,
	identity     string,
	caller_group string,
	tasks        bigint NOT NULL,
	PRIMARY KEY (scope, project_id, status, identity, caller_group),
	FOREIGN KEY (scope, project_id) REFERENCES projects_all ON DELETE CASCADE
);
CREATE FUNCTION count_tasks() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_OP <> 'INSERT' THEN
		UPDATE task_counts_all SET tasks = tasks - 1 WHERE (scope, project_id, status, identity, caller_group) =
			(OLD.scope, OLD.project_id, OLD.status, OLD.identity, OLD.caller_group);
	END IF;
	IF TG_OP <> 'DELETE' THEN
		INSERT INTO task_counts_all AS c VALUES (NEW.scope, NEW.project_id, NEW.status, NEW.identity, NEW.caller_group, 1)
			ON CONFLICT (scope, project_id, status, identity, caller_group) DO UPDATE SET tasks = c.tasks + 1;
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER count_tasks AFTER INSERT OR DELETE OR UPDATE OF project_id, status ON tasks_all
	FOR EACH ROW EXECUTE FUNCTION count_tasks();

CREATE TABLE attempts_all (
	scope               bigint NOT NULL DEFAULT scope(),
	id                  string,
	task_id             string NOT NULL,
	executor            string NOT NULL,
	variant             string,
	prompt              string,
	branch              string NOT NULL,
	workspace           string NOT NULL,
	state               string NOT NULL CHECK (state IN ('waiting', 'starting', 'running', 'completed', 'failed', 'stopped', 'interrupted')),
	error               string,
	landed              string NOT NULL DEFAULT '' CHECK (landed IN ('', 'conflicts', 'merged')),
	push_error          string,
	workflow_session_id string,
	workflow_status     string,
	workflow_step       string,
	run                 string,
	trace               string NOT NULL DEFAULT '',
	identity            string NOT NULL,
	caller_group        string NOT NULL,
	machine_id          string NOT NULL DEFAULT '',
	machine_name        string NOT NULL DEFAULT '',
	root                string NOT NULL DEFAULT '',
	created_at          string NOT NULL,
	updated_at          string NOT NULL,
	PRIMARY KEY (scope, id),
	FOREIGN KEY (scope, task_id) REFERENCES tasks_all ON DELETE CASCADE
);
CREATE INDEX attempts_newest ON attempts_all (scope, task_id, created_at DESC, id);
CREATE INDEX attempts_newest_of_all ON attempts_all (scope, created_at DESC, id);
CREATE INDEX attempts_branch ON attempts_all (scope, branch);
CREATE INDEX attempts_open ON attempts_all (scope, task_id) WHERE state IN ('waiting', 'starting', 'running');

CREATE TABLE attempt_repos_all (
	scope         bigint NOT NULL DEFAULT scope(),
	attempt_id    string,
	position      integer,
	repo_id       string NOT NULL,
	repo_name     string NOT NULL,
	repo_path     string NOT NULL,
	target_branch string NOT NULL,
	base_commit   string,
	worktree      string NOT NULL,
	PRIMARY KEY (scope, attempt_id, position),
	UNIQUE (scope, attempt_id, repo_id),
	FOREIGN KEY (scope, attempt_id) REFERENCES attempts_all ON DELETE CASCADE
);

CREATE TABLE attempt_reports_all (
	scope      bigint NOT NULL DEFAULT scope(),
	attempt_id string,
	output     string,
	output_at  string,
	diff       string,
	diff_at    string,
	PRIMARY KEY (scope, attempt_id),
	FOREIGN KEY (scope, attempt_id) REFERENCES attempts_all ON DELETE CASCADE
);

CREATE TABLE attempt_comments_all (
	scope      bigint NOT NULL DEFAULT scope(),
	id         string,
	attempt_id string NOT NULL,
	repo_id    string NOT NULL,
	file       string NOT NULL,
	line       bigint NOT NULL,
	side       string NOT NULL CHECK (side IN ('new', 'old')),
	quote      string NOT NULL,
	text       string NOT NULL,
	queued     boolean NOT NULL DEFAULT FALSE,
	identity   string NOT NULL,
	created_at string NOT NULL,
	PRIMARY KEY (scope, id),
	FOREIGN KEY (scope, attempt_id) REFERENCES attempts_all ON DELETE CASCADE
);
CREATE INDEX attempt_comments_of ON attempt_comments_all (scope, attempt_id);

CREATE TABLE sessions_all (
	scope          bigint NOT NULL DEFAULT scope(),
	id             string,
	attempt_id     string NOT NULL,
	executor       string NOT NULL,
	variant        string,
	queued_prompt  string,
	queued_variant string,
	queued_at      string,
	created_at     string NOT NULL,
	updated_at     string NOT NULL,
	CHECK ((queued_prompt IS NULL) = (queued_at IS NULL)),
	PRIMARY KEY (scope, id),
	FOREIGN KEY (scope, attempt_id) REFERENCES attempts_all ON DELETE CASCADE
);
CREATE INDEX sessions_newest ON sessions_all (scope, attempt_id, created_at DESC, id);

CREATE TABLE executions_all (
	scope         bigint NOT NULL DEFAULT scope(),
	seq           bigint GENERATED BY DEFAULT AS IDENTITY UNIQUE,
	id            string,
	attempt_id    string NOT NULL,
	log_id        string NOT NULL,
	workflow_session_id string,
	step_id       string,
	session_id    string,
	follow_up     boolean NOT NULL,
	prompt        string NOT NULL,
	executor      string NOT NULL,
	variant       string,
	contained     string NOT NULL DEFAULT '',
	conversation  string,
	limited_until string,
	over_limit    boolean NOT NULL DEFAULT false,
	state         string NOT NULL CHECK (state IN ('waiting', 'starting', 'running', 'completed', 'failed', 'stopped', 'interrupted')),
	owner         string,
	stop_asked    string,
	pid           bigint,
	exit_code     bigint,
	final_message string,
	error         string,
	machine_id    string NOT NULL DEFAULT '',
	machine_name  string NOT NULL DEFAULT '',
	root          string NOT NULL DEFAULT '',
	created_at    string NOT NULL,
	started_at    string,
	ended_at      string,
	CHECK (stop_asked IS NULL OR state <> 'waiting'),
	CHECK ((step_id IS NULL) = (workflow_session_id IS NULL)),
	PRIMARY KEY (scope, id),
	FOREIGN KEY (scope, attempt_id) REFERENCES attempts_all ON DELETE CASCADE,
	FOREIGN KEY (scope, session_id) REFERENCES sessions_all ON DELETE CASCADE
);
CREATE INDEX executions_of ON executions_all (scope, attempt_id, seq) WHERE step_id IS NULL;
CREATE INDEX executions_of_step ON executions_all (scope, attempt_id, step_id, seq);
CREATE INDEX executions_of_session ON executions_all (scope, session_id) WHERE session_id IS NOT NULL;
CREATE INDEX executions_state ON executions_all (scope, state, seq);
CREATE UNIQUE INDEX executions_one_open ON executions_all (scope, attempt_id) WHERE step_id IS NULL AND state IN ('waiting', 'starting', 'running');

CREATE TABLE usages_all (
	scope        bigint NOT NULL DEFAULT scope(),
	seq          bigint GENERATED BY DEFAULT AS IDENTITY,
	execution_id string NOT NULL,
	attempt_id   string NOT NULL,
	executor     string NOT NULL,
	micro_usd    bigint,
	input_tokens  bigint,
	cached_tokens bigint,
	output_tokens bigint,
	turns         bigint,
	thread       string,
	totals       string,
	ended_at     string NOT NULL,
	PRIMARY KEY (scope, seq)
);
CREATE INDEX usages_of ON usages_all (scope, attempt_id, seq);
CREATE INDEX usages_cost ON usages_all (scope, micro_usd);

CREATE TABLE requests_all (
	scope       bigint NOT NULL DEFAULT scope(),
	rowid       bigint NOT NULL, -- in the order of the project's requests, without gaps
	identity    string,
	tool        string,
	request_id  string,
	args_digest string NOT NULL,
	result      string NOT NULL,
	created_at  string NOT NULL,
	PRIMARY KEY (scope, identity, tool, request_id),
	UNIQUE (scope, rowid)
);
CREATE INDEX requests_oldest ON requests_all (scope, created_at);
CREATE FUNCTION number_request() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	SELECT coalesce(max(rowid), 0) + 1 INTO NEW.rowid FROM requests_all WHERE scope = NEW.scope;
	RETURN NEW;
END $$;
CREATE TRIGGER number_request BEFORE INSERT ON requests_all FOR EACH ROW EXECUTE FUNCTION number_request();

CREATE TABLE workflow_executions_all (
	scope               bigint NOT NULL DEFAULT scope(),
	id                  string,
	identity            string NOT NULL,
	source              string NOT NULL,
	workflow_id         string NOT NULL,
	workflow_name       string NOT NULL,
	async               boolean NOT NULL,
	performed           boolean NOT NULL,
	state               string NOT NULL CHECK (state IN ('waiting', 'starting', 'running', 'completed', 'failed', 'cancelled', 'timed_out', 'unknown')),
	source_execution_id string,
	status_supported    boolean NOT NULL,
	timeout             bigint NOT NULL,
	deadline            string,
	trace               string NOT NULL DEFAULT '',
	started_at          string NOT NULL,
	ended_at            string,
	error               string,
	progress            string,
	result              string,
	CHECK ((state IN ('waiting', 'starting', 'running')) = (ended_at IS NULL)),
	CHECK (state <> 'running' OR NOT status_supported OR source_execution_id IS NOT NULL),
	PRIMARY KEY (scope, id)
);
CREATE INDEX workflow_executions_at_source ON workflow_executions_all (scope, source_execution_id) WHERE source_execution_id IS NOT NULL;

CREATE TABLE long_calls_all (
	scope      bigint NOT NULL DEFAULT scope(),
	id         string,
	key        string NOT NULL,
	identity   string NOT NULL,
	tool       string NOT NULL,
	work       string NOT NULL,
	status     string NOT NULL CHECK (status IN ('working', 'completed', 'cancelled')),
	result     string,
	created_at string NOT NULL,
	ended_at   string,
	CHECK ((status = 'working') = (ended_at IS NULL)),
	PRIMARY KEY (scope, id)
);
CREATE UNIQUE INDEX long_calls_working ON long_calls_all (scope, identity, key) WHERE ended_at IS NULL;
CREATE INDEX long_calls_ended ON long_calls_all (scope, ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE workflow_sessions_all (
	scope      bigint NOT NULL DEFAULT scope(),
	id         string,
	revision   bigint NOT NULL,
	root       string NOT NULL,
	parent     string NOT NULL,
	job        string NOT NULL,
	workflow   string NOT NULL,
	step       string NOT NULL,
	status     string NOT NULL CHECK (status IN ('active', 'completed', 'aborted')),
	goal       string NOT NULL,
	identity   string NOT NULL,
	moved_by   string NOT NULL,
	attempt_id string NOT NULL,
	machine_id string NOT NULL,
	machine    string NOT NULL,
	place      string NOT NULL,
	definition string NOT NULL,
	pinned     string NOT NULL,
	waiting    string NOT NULL,
	branch     string NOT NULL,
	failed_tries bigint NOT NULL,
	started_at string NOT NULL,
	updated_at string NOT NULL,
	frame      string NOT NULL,
	PRIMARY KEY (scope, id)
) WITH (fillfactor = 60);
CREATE INDEX workflow_sessions_of ON workflow_sessions_all (scope, identity, attempt_id, status, updated_at DESC, id);
CREATE INDEX workflow_sessions_newest ON workflow_sessions_all (scope, started_at DESC, id, status) WHERE attempt_id = '';
CREATE INDEX workflow_sessions_in ON workflow_sessions_all (scope, parent) WHERE parent <> '';
CREATE INDEX workflow_sessions_at ON workflow_sessions_all (scope, attempt_id) WHERE attempt_id <> '';
CREATE INDEX workflow_sessions_waiting ON workflow_sessions_all (scope, identity) WHERE waiting <> '';
CREATE UNIQUE INDEX workflow_sessions_on ON workflow_sessions_all (scope, branch) WHERE branch <> '' AND status = 'active';

-- What belongs to a session names it without a foreign key: a transition has the session's row, and so needs no
-- check that it exists, which would take a tenth of its time.
CREATE TABLE session_parts_all (
	scope      bigint NOT NULL DEFAULT scope(),
	session_id string,
	kind       string,
	key        string,
	position   bigint NOT NULL,
	body       string NOT NULL,
	PRIMARY KEY (scope, session_id, kind, key)
) WITH (fillfactor = 80);

CREATE TABLE session_requests_all (
	scope      bigint NOT NULL DEFAULT scope(),
	key        string,
	session_id string NOT NULL,
	PRIMARY KEY (scope, key)
);
CREATE INDEX session_requests_of ON session_requests_all (scope, session_id);

CREATE TABLE work_all (
	scope        bigint NOT NULL DEFAULT scope(),
	kind         string,
	key          string,
	about        string,
	place        string NOT NULL,
	due          double precision NOT NULL,
	runner       string NOT NULL,
	runner_place string NOT NULL,
	until        double precision NOT NULL,
	claims       bigint NOT NULL,
	stop         boolean NOT NULL,
	progress     string,
	result       string,
	PRIMARY KEY (scope, kind, key)
);

CREATE TABLE schedules_all (
	scope           bigint NOT NULL DEFAULT scope(),
	id              string,
	name            string NOT NULL,
	cron            string NOT NULL,
	zone            string NOT NULL,
	args            string NOT NULL,
	overlap         string NOT NULL CHECK (overlap IN ('skip', 'queue_one', 'allow')),
	catch_up        string NOT NULL CHECK (catch_up IN ('latest', 'skip', 'all')),
	catch_up_within bigint NOT NULL,
	pause_after     bigint NOT NULL,
	paused          boolean NOT NULL,
	resumed_at      string NOT NULL,
	next            string NOT NULL,
	refusals        string,
	identity        string NOT NULL,
	caller_group    string NOT NULL,
	created_at      string NOT NULL,
	PRIMARY KEY (scope, id),
	UNIQUE (scope, name)
);

CREATE TABLE due_times_all (
	scope    bigint NOT NULL DEFAULT scope(),
	schedule string,
	due_at   string,
	until    string,
	count    bigint NOT NULL,
	outcome  string NOT NULL CHECK (outcome IN ('started', 'queued', 'skipped')),
	reason   string NOT NULL,
	run_id   string,
	PRIMARY KEY (scope, schedule, due_at),
	FOREIGN KEY (scope, schedule) REFERENCES schedules_all ON DELETE CASCADE,
	CHECK ((outcome = 'started') = (run_id IS NOT NULL)),
	CHECK ((outcome = 'skipped') = (reason <> ''))
);
CREATE INDEX due_times_of ON due_times_all (scope, run_id) WHERE run_id IS NOT NULL;
CREATE INDEX due_times_queued ON due_times_all (scope, schedule) WHERE outcome = 'queued';

CREATE TABLE definitions_all (
	scope  bigint NOT NULL DEFAULT scope(),
	hash   string,
	data   string NOT NULL,
	put_at string NOT NULL,
	PRIMARY KEY (scope, hash)
);

CREATE TABLE changes_all (
	scope    bigint NOT NULL DEFAULT scope(),
	xid      xid8 NOT NULL DEFAULT pg_current_xact_id(),
	position bigint GENERATED ALWAYS AS IDENTITY, -- in the order of the inserts, which is not that of the commits
	kind     string NOT NULL,
	id       string NOT NULL,
	at       string NOT NULL,
	PRIMARY KEY (scope, xid, position)
);
-- A position of a follower is the snapshot at which it has read all changes that were committed, with the
-- start of the server: its successor after a failover, or itself after a crash, may use the same
-- transaction ids for other transactions.
CREATE FUNCTION feed_position() RETURNS text LANGUAGE sql STABLE AS $$
	SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint || '/' || pg_current_snapshot()
$$;
-- feed_snapshot returns the snapshot of a position, or NULL if it is unknown.
CREATE FUNCTION feed_snapshot(of text) RETURNS pg_snapshot LANGUAGE plpgsql STABLE AS $$
DECLARE s pg_snapshot;
BEGIN
	IF split_part(of, '/', 1) = split_part(feed_position(), '/', 1) THEN
		s := split_part(of, '/', 2)::pg_snapshot;
	END IF;
	RETURN CASE WHEN pg_snapshot_xmax(s) <= pg_snapshot_xmax(pg_current_snapshot()) THEN s END;
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END $$;

-- change_work puts and removes rows of work, like the statements of package sqlstore.
CREATE PROCEDURE change_work(project bigint, now text, changes json) LANGUAGE plpgsql AS $$
DECLARE
	w record;
BEGIN
	FOR w IN SELECT * FROM json_to_recordset(changes) AS r (removed boolean, kind text, key text, about text, place text, "in" double precision,
		runner text, runner_place text, life double precision) LOOP
		IF w.removed THEN
			DELETE FROM @work_all a WHERE a.scope = project AND a.kind = w.kind AND a.key = w.key AND w.runner IN ('', a.runner);
			IF NOT FOUND AND w.runner <> '' THEN
				RAISE 'the work was taken over' USING ERRCODE = 'DW001';
			END IF;
		ELSE
			INSERT INTO @work_all VALUES (project, w.kind, w.key, w.about, w.place, @unixepoch('subsec') + w."in", w.runner, w.runner_place,
				CASE WHEN w.runner = '' THEN 0 ELSE @unixepoch('subsec') + w.life END, CASE WHEN w.runner = '' THEN 0 ELSE 1 END, FALSE)
				ON CONFLICT (scope, kind, key) DO UPDATE SET about = excluded.about, place = excluded.place, due = excluded.due, runner = excluded.runner,
				runner_place = excluded.runner_place, until = excluded.until, claims = excluded.claims, stop = FALSE, progress = NULL, result = NULL;
		END IF;
		INSERT INTO @changes_all (scope, kind, id, at) VALUES (project, 'work', w.kind || '/' || w.key, now);
	END LOOP;
END $$;

-- move_sessions makes transitions of sessions of no attempt, like the statements of package sqlstore. written has an
-- element for each: it is false if the session does not have its revision before, or exists, if that is -1. Of several,
-- it is NULL for one whose row another transaction has now: so none waits for it, and it is to be tried alone. Other
-- refusals are errors with codes of their own, of all of them. It sets no search path, and its arguments are few and
-- of simple types, because parsing more of them would cost a tenth of its time.
CREATE PROCEDURE move_sessions(INOUT written boolean[], project bigint, now text, fresh text, ids text[], befores bigint[],
	sessions text[], -- for each in turn the columns of workflow_sessions_all after the first one
	options text[],  -- for each its request, hash and data of its definition, changes of work
	put_ends bigint[], put_kinds text[], put_keys text[], put_positions bigint[], put_bodies text[], -- the numbers of the last ones of each
	gone_ends bigint[], gone_kinds text[], gone_keys text[]) LANGUAGE plpgsql AS $$
DECLARE
	s text[];
	o text[];
	before bigint;
	mine text[];
BEGIN
	written := array_fill(NULL::boolean, ARRAY[array_length(ids, 1)]);
	IF array_length(ids, 1) > 1 THEN
		SELECT array_agg(l.id) INTO mine FROM (SELECT w.id FROM @workflow_sessions_all w
			WHERE w.scope = project AND w.id = ANY (ids) ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED) l;
	ELSE
		mine := ids;
	END IF;
	FOR m IN 1 .. array_length(ids, 1) LOOP
		CONTINUE WHEN mine IS NULL OR NOT ids[m] = ANY (mine);
		before := befores[m];
		s := sessions[23*m-22 : 23*m];
		o := options[4*m-3 : 4*m];
		IF before < 0 THEN
			INSERT INTO @workflow_sessions_all VALUES (project, s[1], s[2]::bigint, s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12],
				s[13], s[14], s[15], s[16], s[17], s[18], s[19], s[20]::bigint, s[21], s[22], s[23]) ON CONFLICT DO NOTHING;
		ELSE
			UPDATE @workflow_sessions_all w SET revision = s[2]::bigint, step = s[7], status = s[8], moved_by = s[11], machine_id = s[13],
				machine = s[14], place = s[15], definition = s[16], waiting = s[18], failed_tries = s[20]::bigint, updated_at = s[22], frame = s[23]
				WHERE w.scope = project AND w.id = s[1] AND w.revision = before;
		END IF;
		written[m] := FOUND;
		CONTINUE WHEN NOT FOUND;
		-- From here on it has the session's row, so nobody else changes what belongs to the session.
		IF o[4] IS NOT NULL THEN
			CALL @change_work(project, now, o[4]::json);
		END IF;
		IF o[2] IS NOT NULL AND NOT EXISTS (SELECT FROM @definitions_all d WHERE d.scope = project AND d.hash = o[2] AND d.put_at > fresh) THEN
			INSERT INTO @definitions_all VALUES (project, o[2], o[3], now) ON CONFLICT (scope, hash) DO UPDATE SET put_at = excluded.put_at;
		END IF;
		FOR i IN coalesce(gone_ends[m-1], 0) + 1 .. gone_ends[m] LOOP
			DELETE FROM @session_parts_all p WHERE p.scope = project AND p.session_id = s[1] AND p.kind = gone_kinds[i] AND p.key = gone_keys[i];
		END LOOP;
		FOR i IN coalesce(put_ends[m-1], 0) + 1 .. put_ends[m] LOOP
			INSERT INTO @session_parts_all VALUES (project, s[1], put_kinds[i], put_keys[i], put_positions[i], put_bodies[i])
				ON CONFLICT (scope, session_id, kind, key) DO UPDATE SET position = excluded.position, body = excluded.body;
		END LOOP;
		IF s[8] <> 'active' THEN
			DELETE FROM @session_parts_all p WHERE p.scope = project AND p.session_id = s[1] AND p.kind = 'judged';
		END IF;
		INSERT INTO @changes_all (scope, kind, id, at) VALUES (project, 'session', s[1], now);
		IF o[1] IS NOT NULL THEN
			INSERT INTO @session_requests_all VALUES (project, o[1], s[1]) ON CONFLICT (scope, key) DO NOTHING;
			IF NOT FOUND AND (before < 0 OR EXISTS (SELECT FROM @session_requests_all r WHERE r.scope = project AND r.key = o[1] AND r.session_id <> s[1])) THEN
				RAISE 'the request has moved another session' USING ERRCODE = 'DW002';
			END IF;
		END IF;
	END LOOP;
END $$;

-- make_views creates the view of each table, or adds new columns to it.
CREATE FUNCTION make_views() RETURNS void LANGUAGE plpgsql AS $$
DECLARE t text;
BEGIN
	FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE '%\_all' LOOP
		EXECUTE format('CREATE OR REPLACE VIEW %I AS SELECT * FROM %I WHERE scope = scope() WITH LOCAL CHECK OPTION', left(t, -4), t);
	END LOOP;
END $$;
SELECT make_views();
