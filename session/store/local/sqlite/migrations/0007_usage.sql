-- What the agent of an execution reported that it used, JSON: NULL if it reported nothing, or has not ended.
ALTER TABLE executions ADD COLUMN usage TEXT;
