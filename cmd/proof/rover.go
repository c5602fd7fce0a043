package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"deepwork/catalog/config"
	"deepwork/cmd/proof/tty"
	"deepwork/transport/web"
)

// A rover is a client of a simulation that makes random calls about its own sessions and sometimes
// about those of its neighbor.
type rover struct {
	*agent
	open map[string]bool // sessions under way, its own and its neighbour's; guarded by the history
	last input           // the last one that changed something
}

// roamed are the steps of the workflows that rovers run.
var (
	roamed      = append(slices.Clone(stepNames[:7]), calledStep, "s1[0]")
	roamedItems = append(slices.Clone(allNames[jobSteps:mostSteps-1]), "s0", "s1", "s2")
)

// openSessions is how many open sessions two neighbours have.
const openSessions = 4

// act makes a call.
func (a *rover) act(ctx context.Context) {
	if a.below(30) == 0 { // its work may continue at another server
		_ = a.drop(a.home.current()).leave()
	}
	in := a.choose()
	t := a.perform(ctx, in)
	if in.Tool == "start_workflow" && t.kind == given {
		in.Session = t.reply.Begin.Session
	}
	if t.kind == given && in.Tool != "get_step" && !isRefusal(t.said) {
		a.last = in
	}
	of, _ := ofItem(in.Step)
	if of == personStep && t.said == personAwaited && runtime.GOOS == "linux" && a.decides(ctx, in) {
		in.Request = ""
		t = a.perform(ctx, in)
	}
	a.history.with(func() {
		if t.kind == given && t.reply.Begin != nil && t.reply.Begin.Session != in.Session && !t.over() {
			a.open[t.reply.Begin.Session] = true
		}
		if t.kind == gone || t.over() {
			delete(a.open, in.Session)
		} else if t.kind == given && in.Tool == "start_workflow" {
			a.open[in.Session] = true
		}
	})
}

// decides passes outputs as a person, and reports whether that was recorded.
func (a *rover) decides(ctx context.Context, in input) bool {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandWithin)
	defer cancel()
	step, h := in.Step, a.history
	call, said := h.now(), decided
	if _, _, err := tty.Run(a.deepwork(within, a.home, "sessions", "review", in.Session, step), "", pass); err != nil {
		said = lostReply
	}
	h.add(a.number, in.Session, input{Tool: "person", Step: step, Text: pass}, call, said, h.now())
	return said == decided
}

// saying are the texts that rovers hand in, by workflow, for its forms.
var saying = map[string][]string{
	"items":  {`["a","b","c"]`, `["a","b"]`, "[]", ""},
	"rounds": {"yes", "done", "", "yes"},
}

// choose chooses the next call.
func (a *rover) choose() input {
	var ids []string
	a.history.with(func() { ids = slices.Sorted(maps.Keys(a.open)) })
	id, n := "", len(ids)
	if n > 0 {
		id = ids[a.below(n)]
	}
	if n == 0 || n < openSessions && a.below(5) == 0 {
		in := input{
			Tool:     "start_workflow",
			Job:      jobName(a.below(jobCount)),
			Workflow: []string{"chain", "groups", "fork", "short", "items", "items", "rounds", "calls"}[a.below(8)],
			Goal:     a.token("goal "),
			Request:  a.request(),
		} // always: otherwise a lost one is never found
		if n > 0 && a.below(2) == 0 {
			in.Parent = id
		}
		return in
	}

	var of session
	a.history.with(func() { of = *a.history.sessions[id] })
	in := input{Session: id}
	if a.below(3) == 0 || of.start.Workflow == "items" { // a long history with many lost calls is too tangled
		in.Request = a.request()
	}
	k := a.below(100)
	steps := roamed
	named := a.below(2) == 0
	if of.start.Workflow == "items" { // items take long: seldom go back, or end them
		steps, named = roamedItems, a.below(10) > 0
		if a.below(4) > 0 {
			k = min(k, 85)
		}
	}
	if of.start.Workflow == "calls" || of.called { // going back over a workflow, or ending it, later ends others
		k = min(k, 85)
	}
	switch {
	case k < 62:
		in.Tool = "finished_step"
		in.Outputs = a.outputs(saying[of.start.Workflow]...)
		in.Text = a.token("note ")
		if named {
			in.Step = steps[a.below(len(steps))]
		}
	case k < 70 && a.last.Tool != "" && a.last.Tool != "start_workflow":
		in = a.last // once more
		in.Request = ""
	case k < 86:
		in.Tool, in.Request = "get_step", ""
	case k < 95:
		in.Tool = "go_to_step"
		in.Step = steps[a.below(len(steps))]
		in.All = a.below(2) == 0
	default:
		in.Tool, in.Text = "abort_workflow", a.token("because ")
	}
	return in
}

// A stranger is a client with a token, at a server of its own. It asks for the tasks and attempts of others, and makes
// none. It must never see one, nor how many there are.
type stranger struct {
	*agent
	sim     *simulation
	project string
}

// guard defines the server of the stranger.
func (s *simulation) guard() error {
	token, line, err := web.NewToken(config.Token{Name: "stranger", Group: "others"})
	if err != nil {
		return err
	}

	file := filepath.Join(s.dir, "tokens")
	s.guarded = &server{
		number: len(s.servers),
		http:   true,
		token:  token,
		args:   []string{"--token-file", file, "--toolsets", "board"},
	}
	return os.WriteFile(file, []byte(line+"\n"), 0o600)
}

// act makes a call. The next one replaces it if its answer is lost.
func (a *stranger) act(ctx context.Context) {
	p, err := a.home.wait(ctx)
	if err != nil {
		return
	}

	var r struct {
		Projects []struct {
			ID string `json:"project_id"`
		}
		Total *int
	}
	if a.project == "" {
		if t := a.exchange(ctx, p, "list_projects", map[string]any{}); a.reads(t, &r) && len(r.Projects) > 0 {
			a.project = r.Projects[0].ID
		}
		return
	}

	var task, attempt string
	a.history.with(func() {
		if all := slices.Sorted(maps.Keys(a.sim.tasks)); len(all) > 0 {
			task = all[a.below(len(all))]
			if made := a.sim.tasks[task].attempts; len(made) > 0 {
				attempt = made[a.below(len(made))]
			}
		}
	})
	tool, args := "list_tasks", map[string]any{"project_id": a.project}
	switch k := a.below(8); {
	case k < 4 && task != "":
		tool = []string{"get_task", "delete_task", "list_task_attempts", "update_task"}[k]
		args = map[string]any{"task_id": task}
		if tool == "update_task" {
			args["title"] = "a stranger's"
		}
	case k < 7 && attempt != "":
		tool, args = []string{"get_attempt", "stop_attempt", "tail_attempt", "get_attempt_diff"}[a.below(4)],
			map[string]any{"attempt_id": attempt}
	}
	t := a.exchange(ctx, p, tool, args)
	if seen := t.kind == given; seen && (tool != "list_tasks" || a.reads(t, &r) && (r.Total == nil || *r.Total != 0)) {
		a.history.fault("another's board", "the stranger: %s %v: %.300s", tool, args, t.text)
	}
}
