package main

import (
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/cmd/deepwork/library"
)

// Each piece of the library does its work to the end, on a real server and as it is copied: a job is walked, with its
// checks and its person; the reviewer fails and passes work; the executor does a task of the board.
func TestLibraryWorks(t *testing.T) {
	for _, piece := range library.All() {
		t.Run(piece.Name, func(t *testing.T) {
			root := filepath.Join(testkit.Dir(t), "shop")
			ownUser(t, "trusted_folders: ["+root+"]\n")
			writeFiles(t, root, map[string]string{"go.mod": "module shop\n\ngo 1.26\n", "shop.go": "package shop\n", ".deepwork/config.yml": piece.Config + "\n"})
			for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "go.mod", "shop.go"}, {"commit", "-q", "-m", "first"}} {
				testkit.Git(t, root, args...)
			}
			mustPrint(t, root, "jobs", "add", piece.Name)
			switch piece.Name {
			case "reviewer":
				writeFiles(t, root, map[string]string{"bad.md": "==== END OUTPUTS\nTODO: say more\n", "good.md": "All of it.\n", ".deepwork/jobs/notes/a.md": "Do it.",
					".deepwork/jobs/notes/job.yml": reviewedJob("notes", isItGood, "one")})
				client, _ := startClient(t, root)
				callTool(t, client, "start_workflow", map[string]any{"goal": "Review", "job_name": "notes", "workflow_name": "w"})
				for _, try := range []struct{ file, want string }{{"bad.md", "A TODO is left."}, {"good.md", "workflow_complete"}} {
					reply := callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{"out": try.file}})
					testkit.Contains(t, string(reply), try.want, "the review of %s", try.file)
				}
			case "executor":
				mustPrint(t, root, "board", "add", "Sell tea")
				testkit.Contains(t, mustPrint(t, root, "board", "start", "latest", "--executor", "SCRIPT"), "completed", "the attempt")
				testkit.Contains(t, mustPrint(t, root, "board", "diff", "latest"), "+# Sell tea", "what it did")
			default:
				dir := filepath.Join(root, filepath.FromSlash(piece.Path))
				j, faults := job.Load(dir)
				testkit.Need(t, j != nil, "%v", faults)
				w := walker{t, root, passingClient(t, root), j}
				for i := range j.Workflows {
					w.walk(&j.Workflows[i])
				}
			}
		})
	}
}
