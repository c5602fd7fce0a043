package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/session/attempt"
	"deepwork/session/state"
)

// A project that was moved goes on with the attempts that it had, whose work is not committed.
func TestAMovedProjectKeepsItsAttempts(t *testing.T) {
	const inProject = "attempts: {worktrees: trees}\n"
	for name, config := range map[string]string{"in the state folder": "", "in the project": inProject,
		"relative, in the state folder": "", "relative, in the project": inProject} {
		t.Run(name, func(t *testing.T) {
			p := newBoardProject(t, config)
			task := p.task("! write new.txt some work")
			a := p.ends(p.start(task).AttemptID)
			must(t, p.client.Close())
			if strings.HasPrefix(name, "relative") {
				relativeLinks(t, p.root)
			}
			old := p.root
			p.root = filepath.Join(filepath.Dir(old), "moved", "shop")
			must(t, os.Mkdir(filepath.Dir(p.root), 0o755))
			must(t, os.Rename(old, p.root))
			// The command was killed before its last step, and is given again.
			before := &state.Folder{Root: p.root, Base: state.Of(p.root).Base, Dir: filepath.Join(state.Of(p.root).Base, "projects", state.Name(old))}
			must(t, attempt.Relocate(t.Context(), before, old))
			mustPrint(t, p.root, "where", "--adopt", old)
			mustPrint(t, p.root, "check")

			p.client, _ = startClient(t, p.root)
			now := p.get(a.AttemptID)
			if strings.Contains(string(callTool(t, p.client, "get_attempt", map[string]any{"attempt_id": a.AttemptID})), old+"/") {
				t.Errorf("the attempt names the old path: %+v", now)
			}
			diff := func() string {
				return string(callTool(t, p.client, "get_attempt_diff", map[string]any{"attempt_id": a.AttemptID}))
			}
			if got := diff(); !strings.Contains(got, "some work") {
				t.Errorf("the diff: %s", got)
			}
			callTool(t, p.client, "follow_up", map[string]any{"attempt_id": a.AttemptID, "action": "send", "prompt": "! write more.txt more work"})
			if now = p.ends(a.AttemptID); now.State != "completed" {
				t.Errorf("after a follow-up: %+v\n%s", now, p.output(a.AttemptID))
			}
			if got := diff(); !strings.Contains(got, "some work") || !strings.Contains(got, "more work") {
				t.Errorf("the diff after a follow-up: %s", got)
			}
			gone := boardCall[attempt.DeleteReply](p, "delete_task", map[string]any{"task_id": task.TaskID})
			if len(gone.Rescued) != 1 || gone.Rescued[0].RepoPath != p.root || p.git(p.root, "show", gone.Rescued[0].Ref+":more.txt") == "" {
				t.Errorf("what was kept of a deleted task: %+v", gone)
			}
			if list := p.git(p.root, "worktree", "list"); strings.Count(list, "\n") > 1 {
				t.Errorf("git still has the worktrees %s", list)
			}
		})
	}
}

// relativeLinks links the worktrees of a repository as git 2.48 and newer do by
// worktree.useRelativePaths; older ones read such links, but do not write them.
func relativeLinks(t *testing.T, repo string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(repo, ".git", "worktrees", "*"))
	if err != nil || len(all) == 0 {
		t.Fatal("there is no worktree", err)
	}
	for _, admin := range all {
		text, err := os.ReadFile(filepath.Join(admin, "gitdir"))
		must(t, err)
		dotGit := strings.TrimSpace(string(text))
		there, err := filepath.Rel(admin, dotGit)
		must(t, err)
		back, err := filepath.Rel(filepath.Dir(dotGit), admin)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(admin, "gitdir"), []byte(there+"\n"), 0o644))
		must(t, os.WriteFile(dotGit, []byte("gitdir: "+back+"\n"), 0o644))
	}
}
