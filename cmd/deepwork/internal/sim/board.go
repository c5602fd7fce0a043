//go:build unix

package sim

import (
	"context"
	"fmt"
	"time"
)

// A clerk is a client of the task board: it makes, changes and deletes tasks, and
// has agents work on them. All clerks work on the same tasks.
type clerk struct {
	agent
	shelf         *shelf
	project, repo string // the ids of the project root and of its repository
}

func newClerk(a *agent, s *shelf) *clerk { return &clerk{agent: *a, shelf: s} }

// work makes calls until ctx ends.
func (c *clerk) work(ctx context.Context) {
	defer c.hangUp()
	for ctx.Err() == nil {
		if c.project == "" && !c.find(ctx) {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		c.choose(ctx)
		pause(ctx, time.Duration(c.random.IntN(60))*time.Millisecond)
	}
}

// find asks for the ids of the project root and of its repository.
func (c *clerk) find(ctx context.Context) bool {
	var projects struct {
		Projects []struct {
			ID     string `json:"project_id"`
			IsRoot bool   `json:"is_root"`
		}
	}
	var repos struct {
		Repos []struct {
			ID string `json:"repo_id"`
		}
	}
	t, _ := c.board(ctx, "list_projects", map[string]any{}, true)
	if t.kind != given || !c.reads(t, &projects) || len(projects.Projects) != 1 {
		return false
	}
	id := projects.Projects[0].ID
	t, _ = c.board(ctx, "list_repos", map[string]any{"project_id": id}, true)
	if t.kind != given || !c.reads(t, &repos) || len(repos.Repos) != 1 {
		return false
	}
	c.project, c.repo = id, repos.Repos[0].ID
	return true
}

// choose makes up the next call, and makes it.
func (c *clerk) choose(ctx context.Context) {
	r := c.random
	open := c.shelf.open()
	k := r.IntN(100)
	if len(open) == 0 || len(open) < openTasks && k < 20 {
		c.create(ctx)
		return
	}
	task := open[r.IntN(len(open))]
	attempt, attempts := c.shelf.attempt(task, r)
	switch {
	case k < 30:
		c.register(ctx, task, taskInput{Tool: "update_task", Title: c.token("title ")})
	case k < 40:
		c.register(ctx, task, taskInput{Tool: "get_task"})
	case k < 46:
		c.shelf.with(func() { c.shelf.tasks[task].closed = r.IntN(4) > 0 }) // else others go on with it
		c.register(ctx, task, taskInput{Tool: "delete_task"})
	case k < 52:
		c.repeat(ctx)
	case attempts == 0 || k < 66 && attempts < 4:
		c.start(ctx, task)
	case k < 82:
		c.follow(ctx, attempt)
	case k < 90:
		c.stop(ctx, attempt)
	default:
		c.look(ctx, "get_attempt", attempt)
	}
}

// create makes a task. Its description, which nobody changes, tells which call it
// is from.
func (c *clerk) create(ctx context.Context) {
	name, title := c.token("c"), c.token("title ")
	args := map[string]any{"project_id": c.project, "title": title, "description": name, "request_id": name}
	q := &request{tool: "create_task", args: args}
	c.shelf.with(func() { c.shelf.requests[name] = q })
	begun := c.world.history.now()
	t, unsure := c.board(ctx, q.tool, args, true)
	var made struct {
		ID string `json:"task_id"`
	}
	if t.kind == noEffect && len(unsure) == 0 {
		c.shelf.with(func() { q.refused = true })
	}
	if t.kind != given || !c.reads(t, &made) {
		return
	}
	c.shelf.with(func() {
		q.id = made.ID
		c.shelf.tasks[made.ID] = &shelved{request: name}
	})
	c.note(made.ID, taskInput{Tool: q.tool, Title: title, Request: name}, begun, t)
}

// note records what came of a call of a task that has an answer.
func (c *clerk) note(task string, in taskInput, begun int64, t told) {
	h := c.world.history
	switch {
	case t.kind == goneAnswer:
		h.addTask(c.number, task, in, begun, taskGone, t.ret)
	case t.kind != given:
	case in.Tool == "delete_task":
		h.addTask(c.number, task, in, begun, taskDeleted, t.ret)
	default:
		var reply struct{ Title string }
		if c.reads(t, &reply) {
			h.addTask(c.number, task, in, begun, "is "+reply.Title, t.ret)
		}
	}
}

// register makes a call that has no request_id: each try is an operation by itself.
func (c *clerk) register(ctx context.Context, task string, in taskInput) told {
	args := map[string]any{"task_id": task}
	if in.Tool == "delete_task" {
		c.shelf.with(func() { c.shelf.tasks[task].removing = true })
	}
	if in.Tool == "update_task" {
		args["title"] = in.Title
	}
	t, unsure := c.board(ctx, in.Tool, args, c.random.IntN(4) > 0)
	for _, l := range unsure {
		c.world.history.addTask(c.number, task, in, l.call, lost, l.ret)
	}
	c.note(task, in, t.call, t)
	if in.Tool == "delete_task" && t.kind == noEffect {
		c.shelf.with(func() { c.shelf.tasks[task].closed = false })
	}
	if t.kind == goneAnswer || in.Tool == "delete_task" && t.kind == given {
		c.shelf.with(func() { c.shelf.tasks[task].closed = true })
	}
	return t
}

// repeat makes a call once more that made something: it is to give the same.
func (c *clerk) repeat(ctx context.Context) {
	name, q := c.shelf.answered(c.random)
	if q == nil {
		return
	}
	begun := c.world.history.now()
	t, _ := c.board(ctx, q.tool, q.args, true)
	var again struct {
		Task    string `json:"task_id"`
		Attempt string `json:"attempt_id"`
	}
	if t.kind == given && c.reads(t, &again) {
		id := again.Task
		if q.tool == "start_task_attempt" {
			id = again.Attempt
		}
		if id != q.id {
			c.world.history.fault("client %d: %s with the request_id %s made %s, and now %s", c.number, q.tool, name, q.id, id)
			return
		}
	}
	if q.tool == "create_task" {
		c.note(q.id, taskInput{Tool: q.tool, Title: q.args["title"].(string), Request: name}, begun, t)
	}
}

// start has an agent work on a task.
func (c *clerk) start(ctx context.Context, task string) {
	name := c.token("s")
	o := &ordered{order: newOrder(name, c.random)}
	q := &request{tool: "start_task_attempt", task: task, args: map[string]any{
		"task_id": task, "executor": "SIM", "prompt": o.order.String(), "request_id": name,
		"repos": []map[string]any{{"repo_id": c.repo, "target_branch": "main"}},
	}}
	c.shelf.with(func() { c.shelf.requests[name], c.shelf.orders[name] = q, o })
	t, unsure := c.board(ctx, q.tool, q.args, true)
	var made struct {
		ID string `json:"attempt_id"`
	}
	switch {
	case t.kind == given && c.reads(t, &made):
		c.shelf.with(func() {
			q.id, o.attempt, o.said = made.ID, made.ID, "started"
			c.shelf.tasks[task].attempts = append(c.shelf.tasks[task].attempts, made.ID)
		})
	case len(unsure) == 0:
		c.shelf.with(func() { o.refused, q.refused = true, true })
	}
}

// follow tells an agent more. It has no request_id, so it is told once.
func (c *clerk) follow(ctx context.Context, attempt string) {
	action := []string{"send", "queue", "queue", "cancel"}[c.random.IntN(4)]
	args := map[string]any{"attempt_id": attempt, "action": action}
	o := &ordered{attempt: attempt}
	if action != "cancel" {
		o.order = newOrder(c.token("f"), c.random)
		args["prompt"] = o.order.String()
		c.shelf.with(func() { c.shelf.orders[o.token] = o })
	}
	if action != "send" {
		// Before the call and after it: of those that are made meanwhile nobody can tell.
		c.shelf.drop(attempt, o.token)
		defer c.shelf.drop(attempt, o.token)
	}
	t, _ := c.board(ctx, "follow_up", args, false)
	var reply struct{ Status string }
	switch {
	case action == "cancel":
	case t.kind == given && c.reads(t, &reply):
		c.shelf.with(func() { o.said = reply.Status })
	case t.kind == noEffect:
		c.shelf.with(func() { o.refused = true })
	}
}

// stop ends an attempt. Another client may follow up at once, so that it has ended
// is not looked for.
func (c *clerk) stop(ctx context.Context, attempt string) {
	c.shelf.with(func() { c.shelf.stops[attempt] = true })
	c.shelf.drop(attempt, "")
	defer c.shelf.drop(attempt, "")
	c.look(ctx, "stop_attempt", attempt)
}

// look makes a call that tells of an attempt.
func (c *clerk) look(ctx context.Context, tool, attempt string) {
	t, _ := c.board(ctx, tool, map[string]any{"attempt_id": attempt}, true)
	var reply struct {
		ID string `json:"attempt_id"`
	}
	if t.kind == given && c.reads(t, &reply) && reply.ID != attempt {
		c.world.history.fault("client %d: %s of attempt %s answers %.500s", c.number, tool, attempt, t.text)
	}
}

// boardConfig is the part of the project's config that is for the board.
func boardConfig(script, log string) string {
	return fmt.Sprintf("attempts: {max_concurrent: 4}\nexecutors:\n  SIM: {command: [sh, %q, %q]}\n", script, log)
}

// hangUp ends the connections of a client.
func (a *agent) hangUp() {
	for r, c := range a.clients {
		if r.server.http {
			_ = c.Close() // its server is gone, or goes
		}
	}
}
