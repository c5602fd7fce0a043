package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
)

// An attempt over several repositories: a worktree of each in one folder, where the
// agent and the deepwork of the workspace work; what is left there is kept by the
// repository that it belongs to.
func TestBoardSeveralRepositories(t *testing.T) {
	p := newBoardProject(t, "projects:\n  - name: both\n    repos: [{name: web, path: ../web, copy: [.env]}, {name: main, path: .}]\n")
	web := filepath.Join(p.root, "..", "web")
	writeFiles(t, web, map[string]string{"index.html": "web\n", ".gitignore": ".env\n"})
	for _, args := range [][]string{{"init", "-q", "-b", "trunk"}, {"add", "."}, {"commit", "-q", "-m", "first"}} {
		p.git(web, args...)
	}
	writeFiles(t, web, map[string]string{".env": "SECRET=1\n"})

	var both string
	for _, project := range boardCall[board.ProjectsReply](p, "list_projects", map[string]any{}).Projects {
		if project.Name == "both" {
			both = project.ProjectID
		}
	}
	ids := map[string]string{}
	for _, r := range boardCall[board.ReposReply](p, "list_repos", map[string]any{"project_id": both}).Repos {
		ids[r.Name] = r.RepoID
	}
	v := boardCall[board.Task](p, "create_task", map[string]any{"project_id": both, "title": "Both", "job_name": "release", "workflow_name": "w",
		"description": "! write web/page.html new\n! write main/note.txt new\n! context\n! workflow 3"})
	repos := []map[string]any{{"repo_id": ids["web"], "target_branch": "trunk"}, {"repo_id": ids["main"], "target_branch": "main"}}
	p.refused("start_task_attempt", map[string]any{"task_id": v.TaskID, "executor": "CODER", "repos": append(slices.Clone(repos), repos[0])}, "ToolError", "twice")
	p.refused("start_task_attempt", map[string]any{"task_id": v.TaskID, "executor": "CODER",
		"repos": []map[string]any{repos[0], {"repo_id": ids["main"], "target_branch": "trunk"}}}, "ToolError", `main has no branch "trunk"`)
	p.refused("start_task_attempt", map[string]any{"task_id": v.TaskID, "executor": "CODER",
		"repos": []map[string]any{{"repo_id": p.repo, "target_branch": "main"}}}, "ToolError", "belongs to project "+p.project)
	id := boardCall[attempt.AttemptReply](p, "start_task_attempt", map[string]any{"task_id": v.TaskID, "executor": "CODER", "repos": repos}).AttemptID
	x := p.ends(id)
	out := p.output(id)
	if x.State != "completed" || p.getTask(v.TaskID).Status != "inreview" {
		t.Fatalf("%+v\n%s", x, out)
	}
	var changed []string
	for _, r := range x.Repos {
		changed = append(changed, fmt.Sprint(r.RepoName, r.ChangedFiles))
		if filepath.Dir(r.WorktreePath) != filepath.Dir(x.Repos[0].WorktreePath) {
			t.Errorf("%s is elsewhere", r.WorktreePath)
		}
	}
	if want := []string{"web[page.html]", "main[note.txt]"}; !slices.Equal(changed, want) {
		t.Errorf("changed %v, want %v", changed, want)
	}
	_, line, _ := strings.Cut(out, "context ")
	line, _, _ = strings.Cut(line, "\n")
	var inside board.ContextReply
	if err := json.Unmarshal([]byte(line), &inside); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if inside.AttemptID != id || len(inside.WorkspaceRepos) != 2 || inside.WorkspaceRepos[0].RepoID != ids["web"] || inside.WorkspaceRepos[1].TargetBranch != "main" {
		t.Errorf("%+v", inside)
	}
	diff := boardCall[merge.DiffReply](p, "get_attempt_diff", map[string]any{"attempt_id": id})
	if len(diff.Diffs) != 2 || !strings.Contains(diff.Diffs[0].Diff, "page.html") || !strings.Contains(diff.Diffs[1].Diff, "note.txt") {
		t.Errorf("%+v", diff)
	}
	if env, err := os.ReadFile(filepath.Join(x.Repos[0].WorktreePath, ".env")); err != nil || string(env) != "SECRET=1\n" {
		t.Errorf("the copied file: %q, %v", env, err)
	}

	gone := boardCall[attempt.DeleteReply](p, "delete_task", map[string]any{"task_id": v.TaskID})
	var kept []string
	for _, r := range gone.Rescued {
		kept = append(kept, r.Worktree)
		for _, file := range []string{"page.html", "note.txt"} {
			if in := filepath.Base(r.Worktree) == map[string]string{"page.html": "web", "note.txt": "main"}[file]; in && p.git(r.RepoPath, "show", r.Ref+":"+file) != "new" {
				t.Errorf("%s is not kept", file)
			}
		}
	}
	slices.Sort(kept)
	if want := []string{x.Repos[1].WorktreePath, x.Repos[0].WorktreePath}; !slices.Equal(kept, want) {
		t.Errorf("kept of %v, want of %v: the sessions in the folder are no work", kept, want)
	}
}
