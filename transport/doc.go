// Package transport serves MCP: it decodes a call, sends one message and encodes the reply. It
// holds no business rules.
//
// # How a call flows
//
// finished_step, from the agent's call to its reply:
//
//  1. The transport checks the arguments against the schema of the tool.
//  2. The session that is meant is the one that the call names, or the only open one of those that the
//     connection remembers: a query says which are. The session's actor gets one message.
//  3. The actor of the session looks at the outputs. A pure state machine decides: if the call is
//     refused, the agent gets a ToolError or a StateError, and nothing has changed.
//  4. If the agent reviews its own work, the review instructions are written, and the reply is
//     needs_work with what to do.
//  5. If a reviewer program is due, the attempt is recorded, durably, and package gate runs one review
//     per file or step. Meanwhile the actor receives other calls: abort_workflow, get_step and more.
//  6. The verdicts arrive as messages and are recorded. If the outputs and criteria are still what was
//     judged, what the verdicts change is recorded, too, and the reply is next_step, or needs_work
//     with feedback.
//  7. If the step is finished, the actor reads the instructions of the next step, and one durable
//     transaction has all of it: completed, advanced, begun. Only when it is synced is the reply sent:
//     next_step with begin_step, or workflow_complete.
//
// In a process one goroutine has the state of a session, and is reached only by messages. Nobody owns the
// session: a transition is written if the session still has the revision that it replaces, so any server of
// the project serves it. Jobs are read from an immutable snapshot, without a lock.
package transport
