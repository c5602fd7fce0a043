package board

import "deepwork/transport/tool"

// addListRepos registers list_repos (seed 004, "MCP task tool set").
func addListRepos(s *tool.Set, e Engine) {
	add(s, e, Engine.ListRepos, tool.Tool{
		Name: "list_repos", Title: "List repositories",
		Description: "Lists the git repositories of a project, newest first. start_task_attempt takes their repo_id.\n\n" +
			"Returns repos, count, total and next_cursor, which is null when there are no more.",
		Hints:   tool.Hints{ReadOnly: true, Idempotent: true},
		Input:   tool.InputSchema(projectID(), listLimit(), cursor()),
		Smaller: smallerPage,
	})
}
