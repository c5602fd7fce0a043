package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A clerk is a client of the task board: it makes, changes and deletes tasks, and starts agents on
// them. All clerks share the tasks.
type clerk struct {
	*agent
	sim           *simulation
	plain         bool   // it starts no agents
	project, repo string // the ids of the project root and of its repository
}

// A task is a task of the board that a call has made.
type task struct {
	attempts []string
	closed   bool // nobody works on it any more
	removing bool // its deletion was asked for
}

// The kinds of effects of the board's tools.
const (
	aTask     = "task"    // its token is its request_id and its description
	anAttempt = "attempt" // its token is its request_id and its first order's
	anOrder   = "order"
)

// openTasks is the number of tasks that are worked on at once.
const openTasks = 5

// An order is the instruction of one execution of an agent. Its token is unique.
type order struct {
	token  string
	rests  int  // milliseconds
	exit   int  // its exit code
	commit bool // what it has written; otherwise that stays in the worktree
}

const (
	orderPrefix = "sim-order" // begins the order's line in a prompt
	failing     = 3           // the exit code of agents that must fail
)

func newOrder(token string, r func(n int) int) order {
	o := order{token: token, rests: r(300), commit: r(2) == 0}
	if r(5) == 0 {
		o.exit = failing
	}
	return o
}

func (o order) String() string {
	return fmt.Sprintf("%s %s 0.%03d %d %t", orderPrefix, o.token, o.rests, o.exit, o.commit)
}

// tokenIn returns the token of a prompt's order, or "". A follow-up to an agent without a conversation repeats the
// task's order; the last order counts.
func tokenIn(prompt string) (token string) {
	for line := range strings.Lines(prompt) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == orderPrefix {
			token = f[1]
		}
	}
	return token
}

// agentScript is the agent of attempts. It follows its order: it logs its start, writes its own
// file into the worktree, and logs that and its end. All agents share the log, each line written in
// one piece. Those that commit change the same file, so their branches conflict.
const agentScript = `#!/bin/sh
log=$1
set -- $(grep '^` + orderPrefix + ` ' | tail -n 1)
echo "start $2 $$" >>"$log"
echo "$2" >"work-$2" || exit 98
echo "wrote $2 $$" >>"$log"
if [ "$5" = true ]; then
	echo "$2" >shared
	git add -A && git -c user.name=Sim -c user.email=sim@example.com commit -q -m "$2" && echo "commit $(git ` +
	`rev-parse HEAD) $$" >>"$log"
fi
sleep "$3"
echo "end $2 $$" >>"$log"
echo "done $2"
exit "$4"
`

// act makes a call; the first ones find the ids of the project root and its repository.
func (c *clerk) act(ctx context.Context) {
	if c.repo != "" {
		c.choose(ctx)
		return
	}

	var r struct {
		Projects []struct {
			ID string `json:"project_id"`
		}
		Repos []struct {
			ID string `json:"repo_id"`
		}
	}
	if t, _ := c.tell(ctx, "list_projects", map[string]any{}, true); !c.reads(t, &r) || len(r.Projects) != 1 {
		return
	}
	c.project = r.Projects[0].ID
	if t, _ := c.tell(ctx, "list_repos", map[string]any{"project_id": c.project}, true); c.reads(t, &r) &&
		len(r.Repos) == 1 {
		c.repo = r.Repos[0].ID
	}
}

// choose chooses the next call and makes it.
func (c *clerk) choose(ctx context.Context) {
	var open, attempts []string
	var task, attempt string
	c.history.with(func() {
		open = slices.DeleteFunc(slices.Sorted(maps.Keys(c.sim.tasks)), func(id string) bool {
			return c.sim.tasks[id].closed
		})
		if len(open) > 0 {
			task = open[c.below(len(open))]
			attempts = c.sim.tasks[task].attempts
		}
	})
	if len(attempts) > 0 {
		attempt = attempts[c.below(len(attempts))]
	}
	k := c.below(100)
	switch {
	case len(open) == 0 || len(open) < openTasks && k < 20:
		c.create(ctx)
	case k < 30:
		c.register(ctx, task, taskInput{Tool: "update_task", Title: c.token("title ")})
	case k < 40:
		c.register(ctx, task, taskInput{Tool: "get_task"})
	case k < 46:
		closed := c.below(4) > 0 // otherwise others continue it
		c.history.with(func() { c.sim.tasks[task].closed = closed })
		c.register(ctx, task, taskInput{Tool: "delete_task"})
	case k < 52 || c.plain && k < 60:
		c.repeat(ctx)
	case c.plain:
		c.register(ctx, task, taskInput{Tool: []string{"get_task", "update_task"}[k%2], Title: c.token("title ")})
	case attempt == "" || k < 66 && len(attempts) < 4:
		c.start(ctx, task)
	case k < 76:
		c.follow(ctx, attempt)
	case k < 80:
		// Another client may follow up at once, so its end is not checked.
		c.history.with(func() { c.sim.stops[attempt] = true })
		defer c.dropping(attempt, "")()
		c.tell(ctx, "stop_attempt", map[string]any{"attempt_id": attempt}, true)
	case k < 95:
		c.land(ctx, attempt)
	default:
		c.tell(ctx, "get_attempt", map[string]any{"attempt_id": attempt}, true)
	}
}

// land merges, rebases or pushes the branch of an attempt, or undoes its merge.
func (c *clerk) land(ctx context.Context, attempt string) {
	args := map[string]any{"attempt_id": attempt}
	tool := []string{"merge_attempt", "merge_attempt", "merge_attempt", "rebase_attempt", "push_attempt",
		"abort_merge"}[c.below(6)]
	switch tool {
	case "merge_attempt":
		args["way"] = []string{"merge", "squash", "rebase"}[c.below(3)]
	case "push_attempt":
		args["remote"], args["force"] = "mirror", true
	}

	var r struct{ Repos []struct{ Status string } }
	if t, _ := c.tell(ctx, tool, args, true); c.reads(t, &r) {
		c.history.with(func() { c.sim.landed[r.Repos[0].Status]++ })
	}
}

// request makes a call with a request_id, for the first time or again: the id in the reply must not
// change. It reports whether the call was answered.
func (c *clerk) request(ctx context.Context, kind, token string, e *effect) bool {
	tool, key := "create_task", "task_id"
	if kind == anAttempt {
		tool, key = "start_task_attempt", "attempt_id"
	}

	begun := c.history.now()
	t, unsure := c.tell(ctx, tool, e.args, true)
	var r map[string]any
	is := c.reads(t, &r)
	id, _ := r[key].(string)
	was := id
	c.history.with(func() {
		switch {
		case is && e.id == "":
			e.id = id
			if kind == aTask {
				c.sim.tasks[id] = &task{}
			}
		case is:
			was = e.id
		case e.id == "":
			e.refused = t.kind == noEffect && len(unsure) == 0
		}
	})
	if id != was {
		c.history.fault("a repetition with another reply", "client %d: the request %s was answered %s, and again %s",
			c.number, token, was, id)
	}
	if kind == aTask && e.id != "" {
		c.note(e.id, taskInput{Tool: "create_task", Title: e.args["title"].(string), Request: token}, begun, t)
	}
	return is
}

// create makes a task. Its description, which nobody changes, names the call.
func (c *clerk) create(ctx context.Context) {
	token := c.token("c")
	c.request(ctx, aTask, token, c.history.ask(aTask, token, &effect{args: map[string]any{
		"project_id": c.project, "title": c.token("title "), "description": token, "request_id": token}}))
}

// repeat repeats an answered call with a request_id.
func (c *clerk) repeat(ctx context.Context) {
	kind := []string{aTask, anAttempt}[c.below(2)]
	if c.plain {
		kind = aTask
	}

	var answered []string
	var all map[string]*effect
	c.history.with(func() {
		all = maps.Clone(c.history.effects[kind])
		maps.DeleteFunc(all, func(_ string, e *effect) bool { return e.id == "" })
		answered = slices.Sorted(maps.Keys(all))
	})
	if len(answered) > 0 {
		token := answered[c.below(len(answered))]
		c.request(ctx, kind, token, all[token])
	}
}

// start starts an agent on a task.
func (c *clerk) start(ctx context.Context, task string) {
	token := c.token("s")
	o := c.history.ask(anOrder, token, &effect{order: newOrder(token, c.below)})
	e := c.history.ask(anAttempt, token, &effect{of: task, args: map[string]any{
		"task_id": task, "executor": "SIM", "prompt": o.order.String(), "request_id": token,
		"repos": []map[string]any{{"repo_id": c.repo, "target_branch": "main"}},
	}})
	is := c.request(ctx, anAttempt, token, e)
	c.history.with(func() {
		o.refused = e.refused
		if is {
			o.of, o.said = e.id, "started"
			c.sim.tasks[task].attempts = append(c.sim.tasks[task].attempts, e.id)
		}
	})
}

// note records the outcome of an answered call about a task.
func (c *clerk) note(task string, in taskInput, begun int64, t answer) {
	said := taskGone
	var r struct{ Title string }
	switch {
	case t.kind == gone:
	case t.kind != given || !c.reads(t, &r):
		return
	case in.Tool == "delete_task":
		said = taskDeleted
	default:
		said = "is " + r.Title
	}
	c.history.add(c.number, task, in, begun, said, t.ret)
}

// register makes a call without a request_id: each try is a separate operation.
func (c *clerk) register(ctx context.Context, task string, in taskInput) answer {
	args := map[string]any{"task_id": task}
	if in.Tool == "update_task" {
		args["title"] = in.Title
	}

	of := c.sim.tasks
	removes := in.Tool == "delete_task"
	c.history.with(func() { of[task].removing = of[task].removing || removes })
	t, unsure := c.tell(ctx, in.Tool, args, c.below(4) > 0)
	for _, l := range unsure {
		c.history.add(c.number, task, in, l.call, lostReply, l.ret)
	}
	c.note(task, in, t.call, t)
	c.history.with(func() {
		switch {
		case t.kind == gone || removes && t.kind == given:
			of[task].closed = true
		case removes && t.kind == noEffect:
			of[task].closed = false
		}
	})

	return t
}

// readTasks reads each task at the end. A removal that was interrupted by a kill is completed by the same call.
func (c *clerk) readTasks(ctx context.Context) {
	c.lose = 0
	for _, id := range slices.Sorted(maps.Keys(c.sim.tasks)) {
		over := func(t answer) bool { return t.kind == given || t.kind == gone }
		var t answer
		for n := 0; n < tries && c.sim.tasks[id].removing; n++ {
			if t = c.register(ctx, id, taskInput{Tool: "delete_task"}); over(t) {
				break
			}
		}
		if read := c.register(ctx, id, taskInput{Tool: "get_task"}); !over(t) || !over(read) {
			c.history.fault("a task that cannot be deleted or read", "task %s: %s %s", id, t.text, read.text)
		}
	}
}

// follow sends an agent a follow-up. The call gets no request_id, so it is made once.
func (c *clerk) follow(ctx context.Context, attempt string) {
	action := []string{"send", "queue", "queue", "cancel"}[c.below(4)]
	args := map[string]any{"attempt_id": attempt, "action": action}
	o := &effect{of: attempt}
	if action != "cancel" {
		o.order = newOrder(c.token("f"), c.below)
		args["prompt"] = o.order.String()
		c.history.ask(anOrder, o.order.token, o)
	}
	if action != "send" {
		defer c.dropping(attempt, o.order.token)()
	}
	t, _ := c.tell(ctx, "follow_up", args, false)

	var r struct{ Status string }
	is := c.reads(t, &r)
	c.history.with(func() {
		if is {
			o.said = r.Status
		}
		o.refused = t.kind == noEffect
	})
}

// dropping notes, before a call and when it returns, that the queue of an attempt may be lost, except one order.
// Nothing is known about orders given in between.
func (c *clerk) dropping(attempt, but string) func() {
	drop := func() {
		c.history.with(func() {
			for token, o := range c.history.effects[anOrder] {
				o.dropped = o.dropped || o.of == attempt && token != but
			}
		})
	}
	drop()
	return drop
}
