-- On which machine, and in which project folder there, an attempt's worktrees lie and an
-- execution ran: '' in a store of one machine, and before any machine has taken the attempt.
ALTER TABLE attempts ADD COLUMN machine_id TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN machine_name TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN root TEXT NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN machine_id TEXT NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN machine_name TEXT NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN root TEXT NOT NULL DEFAULT '';

-- What other machines can read of an attempt.
CREATE TABLE attempt_reports (
	attempt_id TEXT PRIMARY KEY REFERENCES attempts (id) ON DELETE CASCADE,
	output     TEXT, -- the last entries that its agents wrote, JSON
	output_at  TEXT,
	diff       TEXT, -- at the end of its last execution, JSON
	diff_at    TEXT
) STRICT;
