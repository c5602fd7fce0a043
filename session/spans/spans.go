// Package spans has the names of the spans that this program exports and of their attributes, which the
// documentation shows as a table. Attributes of OpenTelemetry's conventions for GenAI and MCP are used where
// they exist.
//
// Spans contain no texts by people or agents, no paths and no error messages, except for Goal and Feedback if
// the user allows it (telemetry.content).
package spans

import "go.opentelemetry.io/otel/attribute"

// The names of spans, or their prefixes.
const (
	Call        = "tools/call"
	Session     = "invoke_workflow"
	Step        = "step"
	Review      = "review"
	Checks      = "checks"
	Verdict     = "verdict"
	Person      = "wait_for_person"
	Limit       = "wait_for_limit"
	Run         = "run"
	Agent       = "invoke_agent"
	Remote      = "remote_workflow"
	Merge       = "git_merge"
	Transaction = "transaction"
)

// The keys of attributes.
const (
	Method    = attribute.Key("mcp.method.name")
	Operation = attribute.Key("gen_ai.operation.name") // execute_tool, invoke_workflow or invoke_agent
	Tool      = attribute.Key("gen_ai.tool.name")
	Workflow  = attribute.Key("gen_ai.workflow.name") // JOB/WORKFLOW
	AgentName = attribute.Key("gen_ai.agent.name")    // NAME or NAME:VARIANT of an executor
	Input     = attribute.Key("gen_ai.usage.input_tokens")
	Cached    = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	Output    = attribute.Key("gen_ai.usage.output_tokens")
	Criterion = attribute.Key("gen_ai.evaluation.name") // the name of a check, or what a review is about
	Label     = attribute.Key("gen_ai.evaluation.score.label")
	Feedback  = attribute.Key("gen_ai.evaluation.explanation") // only with telemetry.content

	SessionID   = attribute.Key("deepwork.session.id")
	StepID      = attribute.Key("deepwork.step.id")
	RunID       = attribute.Key("deepwork.run.id") // also the id of an attempt of the task board
	ExecutionID = attribute.Key("deepwork.execution.id")
	Outcome     = attribute.Key("deepwork.outcome") // how it ended, as one word
	Try         = attribute.Key("deepwork.try")     // its number, or how many there were
	Cost        = attribute.Key("deepwork.cost_usd")
	Source      = attribute.Key("deepwork.source")
	Doing       = attribute.Key("deepwork.transaction") // what the transaction is for
	Goal        = attribute.Key("deepwork.goal")        // only with telemetry.content
)

// A Kind describes the spans with one name: a row of the table in the documentation.
type Kind struct {
	Name   string
	What   string
	Parent string
	Keys   []attribute.Key
}

// Kinds are all kinds of spans.
var Kinds = []Kind{
	{Session + " JOB/WORKFLOW", "a session, from its start to its end",
		"the caller, the run or the session it is nested in; none if that is unknown",
		[]attribute.Key{Operation, Workflow, SessionID, RunID, Outcome, Goal}},
	{Step, "a step of a session, until it is finished or left", Session,
		[]attribute.Key{SessionID, StepID, Try, Outcome}},
	{Review, "a review of what was handed in, by a reviewer program", Step,
		[]attribute.Key{SessionID, StepID, Try, Outcome}},
	{Checks, "the checks of what was handed in", Step, []attribute.Key{SessionID, StepID, Try, Outcome}},
	{Verdict, "one reviewer or one check", Review + " or " + Checks, []attribute.Key{Criterion, Label, Feedback}},
	{Person, "the wait for a person's review", Step, []attribute.Key{SessionID, StepID, Outcome, Feedback}},
	{Run, "a run, from its start or its resumption until it ends or stops", "the caller; none if that is unknown",
		[]attribute.Key{RunID, ExecutionID, Outcome}},
	{Agent + " EXECUTOR", "a process of an agent; a reviewer that is an executor, which has no duration here",
		Run + ", or the caller that started an attempt",
		[]attribute.Key{Operation, AgentName, RunID, ExecutionID, SessionID, StepID, Input, Cached, Output, Cost,
			Outcome}},
	{Limit, "the wait for the limit of an agent's provider", Run, []attribute.Key{RunID, SessionID, StepID}},
	{Remote, "a workflow that runs at a source", "the caller; none if that is unknown",
		[]attribute.Key{Workflow, Source, ExecutionID, Outcome}},
	{Call + " TOOL", "a call of a tool", "the caller, or what the call is about",
		[]attribute.Key{Method, Operation, Tool, Outcome}},
	{Merge, "the merge of a branch", Call + " or " + Run, []attribute.Key{Outcome}},
	{Transaction, "a transaction of the store that took longer than 100 ms", "what it is for", []attribute.Key{Doing}},
}
