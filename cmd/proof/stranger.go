package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"deepwork/catalog/config"
	"deepwork/transport/web"
)

// A stranger is a client with a token, at a server of its own. It asks for the tasks and the
// attempts of the others, and makes none: it must never get one, not even its number.
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
	s.guarded = &server{number: len(s.servers), http: true, token: token, args: []string{"--token-file", file, "--toolsets", "board"}}
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
		tool, args = []string{"get_task", "delete_task", "list_task_attempts", "update_task"}[k], map[string]any{"task_id": task}
		if tool == "update_task" {
			args["title"] = "a stranger's"
		}
	case k < 7 && attempt != "":
		tool, args = []string{"get_attempt", "stop_attempt", "tail_attempt", "get_attempt_diff"}[a.below(4)], map[string]any{"attempt_id": attempt}
	}
	t := a.exchange(ctx, p, tool, args)
	if seen := t.kind == given; seen && (tool != "list_tasks" || a.reads(t, &r) && (r.Total == nil || *r.Total != 0)) {
		a.history.fault("another's board", "the stranger: %s %v: %.300s", tool, args, t.text)
	}
}
