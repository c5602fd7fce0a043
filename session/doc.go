// Package session holds what the engines share, above all the error that agents read.
//
// # Guarantees
//
// What happens, and what holds then:
//
//   - The server is killed at any moment: every transition whose reply was sent is on disk, whole;
//     a session is as it was before a call or after it, never between. Name its session_id to go
//     on.
//   - The client loses a reply and calls again: the same call gives the same reply and moves
//     nothing: finished_step by step_id and outputs, every call that moves something by request_id.
//   - The client is compacted or restarted: get_step gives the current step again; get_workflows
//     lists the sessions that it can resume in resumable, and so does the error of a call with no
//     session active; start_workflow of a workflow that is in progress names its session in notice.
//   - job.yml is edited during a session: the session follows as long as its workflow and its step
//     are still there; else it finishes on the definition it has, and the reply says so.
//   - job.yml is saved half, or badly: the last good definition stays in use; the fault is in
//     errors, with line and column.
//   - An agent writes a job and calls at once: the call sees it.
//   - One job is broken: the others work.
//   - An instructions file is missing: the call that would begin the step is refused, names the
//     file, and moves nothing.
//   - An output is missing, outside the project, of another type: the call is refused and says
//     which.
//   - A session's file is truncated: it is set aside under another name and reported, never
//     overwritten; other sessions go on.
//   - A session's file is altered, replaced by an older version of it (from a backup, by git), put
//     back after a prune, or comes from another installation or project: it is not resumed, not
//     listed to agents and not touched, and its calls say so (session_foreign), until you look at
//     it and take it over with deepwork sessions adopt; deepwork check notes it. What a running
//     server has in memory wins, and what was altered is set aside.
//   - The disk is full or read-only: the call is refused, the state stays as it was; reading still
//     works.
//   - Two servers on one project: a session has one owner at a time; another takes it over when the
//     owner is gone, or when no connection of the owner holds it any more.
//   - A tool panics: an error for that call, a stack trace in the log; the server goes on.
//   - A reply would be too large: nothing is cut silently: lists of tasks end sooner, with a cursor
//     to the rest; get_workflows says in notice what it leaves out over 4 MB; a group with more
//     than 2 MiB of instructions does not begin; what else would have over 8 MiB is refused, with
//     what to do.
//   - Stdin ends: calls in flight are finished and answered; those that wait for an execution at a
//     source for 10 s at most, then the server ends.
//   - SIGTERM or SIGINT: the same, but a call that waits for a review is cut off after 0.3 s and
//     told how to go on; reviewers are ended. Within 2 s all is over: clients kill what takes
//     longer.
//   - The same, over HTTP: new calls get 503, /readyz too; calls in flight have 5 s, then they are
//     cut off, told how to go on, and named in the log; within 10 s all is over. A second signal
//     ends the server at once.
//   - A connection is gone, or idle for idle_timeout: its workflows are resumable by their
//     session_id, from any connection of the same caller, on this server and on any other of the
//     project; one that could not be freed, because the disk was full, is tried again every 30 s.
//   - A web page tries to call (DNS rebinding): 403: Host and Origin are checked; only the server's
//     own pages and those of --allowed-origin or of allowed_origins in your own config may.
//   - Broken JSON, unknown methods and versions, large bodies and headers, ids used twice: 400,
//     404, 413 or 431 for that request alone; the rest go on.
//   - Clients that send slowly, never read, or only connect: headers have 10 s, bodies 30 s, a
//     write 20 s; at the limit of connections the one that waits longest without a request makes
//     room.
//   - The server is killed while agents work: they go on; the next server, or another on the
//     project, takes them up and reports how they ended. What was cut short says interrupted;
//     nothing is run twice or repeated automatically.
//   - Two agents work on one repository: each has its own worktree and branch; the main checkout is
//     never touched, and is no reason to refuse.
//   - A run, its agents or all of it are killed: deepwork run resume goes on; no finished step is
//     done again, and a step never has two agents.
//   - An attempt is deleted with work not committed: it is a commit under
//     refs/deepwork/rescue/<attempt> first, or nothing is removed; branches with commits stay.
//   - A machine goes down between two git steps: the steps are journalled: they are finished, or
//     undone, at the next start.
//   - An agent hangs or forks: stop_attempt ends the whole group; its output is bounded to 32 MB.
//   - An agent stops in the middle of its task's workflow: the task stays inprogress, at that step.
//   - A source of workflows is down, hangs, floods or sends nonsense: start-up and tools/list are
//     as fast as before; the other tools stay; its own stay listed for keep_tools_for, say what is
//     wrong, and come back on their own.
//   - The server is killed while a workflow runs at its source: the next one follows it by its id;
//     where the source had not answered yet, the execution is unknown; none is started twice.
//   - A reviewer crashes, hangs or prints nonsense: no step passes by it, no attempt is used up;
//     the error says what it did.
//   - A file is changed while it is reviewed: the verdict is not used.
//
// deepwork check verifies what is on disk, also while servers run. A simulation uses it too: there
// clients work on workflows, on tasks with real agents and on workflows of another system, while
// servers are killed, lose power and unsynced data, and meet a full or slow disk, damaged files and
// a wrong clock. Each answer is compared with a model. .ci/run runs a minute of it; for hours of
// it:
//
//	go test ./cmd/proof -run '^TestSimulation$' -timeout 0 -v -sim.time 3h
//
// Not promised: that two people who edit the same output files at once do not disturb each other,
// and that an agent reviews its own work honestly; the override and its reason are kept.
package session
