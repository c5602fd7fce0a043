-- What the agent of an execution reported that it used, JSON: NULL if it reported nothing, or has not ended.
ALTER TABLE executions_all ADD COLUMN usage string;
SELECT make_views();
