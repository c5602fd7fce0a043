-- Whether an agent or a person performs the steps of an execution at its source.
ALTER TABLE workflow_executions ADD COLUMN performed INTEGER NOT NULL DEFAULT 0;
