// Package session holds what the engines share, above all the error that agents read.
//
// # Guarantees
//
// What happens, and what deepwork guarantees then:
//
//   - The server is killed at any moment: once the agent has its reply, the state change is on
//     disk, completely; a session is as it was before a call or after it, never between. Pass its
//     session_id to resume it.
//   - The client loses a reply and calls again: repeating a call returns the same reply and
//     changes nothing: finished_step by step_id and outputs, every other call that changes
//     something by request_id.
//   - The client is compacted or restarted: get_step returns the current step again. Sessions
//     that can be resumed are listed in resumable of get_workflows and in the error of a call
//     without an active session; start_workflow of a workflow that is in progress names its
//     session in notice.
//   - job.yml is edited during a session: the session uses the new version as long as that has
//     its workflow and its step; otherwise it finishes with the version it has, and the reply
//     says so.
//   - job.yml is saved incompletely or with errors: the last good version stays in use as long
//     as the server runs; notice of start_workflow says so, and errors says what is wrong, with
//     line and column.
//   - An agent writes a job and calls at once: the call sees the new job.
//   - One job is broken: the others work.
//   - An instructions file is missing: the call that would begin its step is refused, names the
//     file, and changes nothing.
//   - An output is missing, outside the project, or of another type: the call is refused and says
//     which.
//   - A session's file in .deepwork/tmp is edited, damaged, restored from a backup or removed: nothing
//     happens to the session, which is in the database of the project; the file is an export of it.
//     deepwork check names files that differ, and deepwork sessions import makes sessions of files.
//   - The database is damaged: nothing overwrites or moves it while a process has it open; every call
//     and command that needs it is refused with its path and what to do. deepwork check --set-aside
//     renames it, and deepwork sessions import --all makes sessions of the exports.
//   - The disk is full or read-only: the call is refused and the state stays as it was; reading
//     still works.
//   - Several servers on one project, also on several machines with one database: any of them serves
//     any session at any time. Calls through several servers take effect one after the other, and a
//     repeated call finds its reply at each of them.
//   - A server is suspended, or the database is busy: on SQLite calls of others wait at most 10 s and are
//     then refused with store_busy; PostgreSQL ends the transaction after 2 s. Nothing is lost when the
//     server goes on or is killed.
//   - The reply of the database to a commit is lost: the call is applied to the session as it is then, and
//     finds its own reply if it was stored.
//   - A server is killed while a review runs: another server of its machine and root goes on with the review
//     at once, or the next one that starts there; elsewhere the next call does, after at most 15 s. A verdict
//     counts once.
//   - A tool panics: that call gets an error, the log a stack trace, and the server continues.
//   - A reply would be too large: nothing is cut silently. Lists of tasks end sooner, with a
//     cursor to the rest; get_workflows says in notice what it leaves out over 4 MB; a group with
//     more than 2 MiB of instructions does not begin; any other reply over 8 MiB is refused, with
//     what to do.
//   - Stdin ends: calls in flight are finished and answered, those that wait for a remote run,
//     for 10 s at most; then the server ends.
//   - SIGTERM or SIGINT: the same, but a call that waits for a review is cut off after 0.3 s and
//     told how to continue; reviewers are ended. The server ends within 2 s, because clients kill
//     one that takes longer.
//   - The same, over HTTP: new calls get 503, and so does /readyz. Calls in flight have 5 s; then
//     they are cut off, told how to continue, and named in the log. The server ends within 10 s,
//     and at once on a second signal.
//   - A connection is gone, or idle for idle_timeout: its workflows can be resumed by their
//     session_id, from any connection of the same caller, on this server and on any other of the
//     project.
//   - A web page tries to call (DNS rebinding): 403. Host and Origin are checked; only the
//     server's own pages and those of --allowed-origin, or of allowed_origins in your user
//     config, are allowed.
//   - Broken JSON, unknown methods and versions, large bodies and headers, duplicate ids: 400,
//     404, 413 or 431 for that request alone; all others continue.
//   - Clients that send slowly, never read, or only connect: headers have 10 s, bodies 30 s, a
//     write 20 s; at the limit of connections that serve a request or a stream, the requests of
//     others wait.
//   - The server is killed while agents work: they continue. The next server, or another one of
//     the project, takes them over and reports how they ended. What was cut short is interrupted;
//     nothing is run twice or repeated automatically.
//   - An attempt is stopped or deleted at another server than the one that leads its agent: that server acts on
//     it within a second, on another machine within 5 s.
//   - A machine is away longer than attempts.machine_lost_after: its attempts are interrupted, and say where
//     their work is. When it is back, it ends the agents that still run there.
//   - Two agents work on one repository: each has its own worktree and branch. Your checkout is
//     not touched until you merge, and its state is no reason to refuse.
//   - A run is killed, with some or all of its agents: deepwork run resume continues it; no
//     finished step is done again, and a step never has two agents at once.
//   - An attempt is deleted with uncommitted work: the work becomes a commit under
//     refs/deepwork/rescue/<attempt> first, or nothing is removed; branches that are not merged stay.
//   - A machine goes down while worktrees are made or removed: that is undone or finished at the
//     next start. While it merges: the next call names the command that ends what git has left.
//   - An agent hangs or forks: stop_attempt ends its whole process group; its output is limited
//     to 32 MB.
//   - An agent stops in the middle of its task's workflow: the task stays inprogress, at that
//     step.
//   - A source of workflows is down, hangs, floods or sends nonsense: start-up and tools/list are
//     as fast as before, and other tools are not affected; the source's tools stay listed for
//     keep_tools_for, say what is wrong, and recover automatically.
//   - The server is killed while a workflow runs at its source: within a second another server of the
//     project on this machine follows the execution by its id. One on another machine does so within
//     15 s, as after a server that freezes; after a graceful stop any does at once. If the source had
//     not answered yet, the execution is unknown; none is started twice. A server that wakes up again
//     cannot overwrite what another one has recorded.
//   - An execution is cancelled at another server than the one that follows it: that server notices
//     within a second, on another machine within 5 s, and cancels it at its source. If it is gone,
//     the server that follows the execution next cancels it.
//   - A reviewer crashes, hangs or prints nonsense: no step passes because of it, and no try is
//     used up; the error says what the reviewer did.
//   - A file is written while it is reviewed: the verdict is not used, even if the old content is there again. What a
//     reviewer reads itself is a copy of what was submitted, so that it judges nothing else.
//
// deepwork check verifies what is on disk, even while servers run. A simulation uses it as well: in
// it, clients work on workflows, on tasks with real agents and on workflows of another system, while
// servers are killed, one or all at once, and meet a full or slow disk and a wrong clock, and somebody
// edits .deepwork. Each answer is compared with a reference model. .ci/run runs it for a minute; to
// run it for hours:
//
//	go test ./cmd/proof -run '^TestSimulation$' -timeout 0 -v -sim.time 3h
//
// Another test (TestPowerCuts) cuts the power at any moment of a server's work: of the writes to the
// embedded database that were not synced, some are lost or torn, and everything acknowledged is there.
// For PostgreSQL that is the promise of the database.
//
// # States
//
// Attempts, runs, the executions of their agents, and the steps of runs have one vocabulary, in tools, commands and
// pages; board.StateOf computes it. JSON has underscores in place of blanks, and "waiting" for the limit. An
// execution has the states that are marked with x, a step of a run those with s.
//
//	queued               x s  waits for a slot, its turn or another try, or its worktrees are made
//	running              x s  an agent works
//	waiting for you        s  no agent works, since a person must pass the outputs of a step
//	waiting for a limit    s  no agent works until a limit of the provider ends
//	paused                 s  a budget ended the run
//	conflicts                 the worktree has a merge whose conflicts are not resolved
//	interrupted          x s  it was cut short, or the process that led the run is gone
//	failed               x s  the agent failed, or no agent finished a step of the run
//	stopped              x s  a person stopped it
//	completed            x s  the agent ended without a failure; the workflow of the run is complete
//	merged                    all its commits are in its target branches, and no work is left
//	not begun              s  the run has not come to the step
//
// A task is todo, inprogress, inreview, done or cancelled (seed 004), a session active, completed or aborted
// (seed 002), and a remote run what package store says of it (seed 003).
//
// Not guaranteed: two people who edit the same output files at once can overwrite each other's
// work, and an agent may not review its own work honestly; the override and its reason are kept.
package session
