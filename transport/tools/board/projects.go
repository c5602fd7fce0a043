package board

import (
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addListProjects registers list_projects (seed 004, "MCP task tool set").
func addListProjects(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.ListProjectsArgs, *attempt.ProjectsReply]{
		Name: "list_projects", Title: "List projects",
		Description: "Lists the projects of the task board, newest first. Call it first when you work with tasks: list_tasks, create_task and list_repos " +
			"take a project_id. The folder that the server works on is a project by itself; more stand in the config.\n\n" +
			"Returns projects, count, total and next_cursor, which is null when there are no more.",
		Hints:   tool.Hints{ReadOnly: true, Idempotent: true},
		Input:   tool.InputSchema(listLimit(), cursor()),
		Output:  outputSchema[attempt.ProjectsReply](),
		Call:    call(e, Engine.ListProjects),
		Smaller: smallerPage,
	})
}

// addListRepos registers list_repos (seed 004, "MCP task tool set").
func addListRepos(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.ListReposArgs, *attempt.ReposReply]{
		Name: "list_repos", Title: "List repositories",
		Description: "Lists the git repositories of a project, newest first. start_task_attempt takes their repo_id.\n\n" +
			"Returns repos, count, total and next_cursor, which is null when there are no more.",
		Hints:   tool.Hints{ReadOnly: true, Idempotent: true},
		Input:   tool.InputSchema(projectID(), listLimit(), cursor()),
		Output:  outputSchema[attempt.ReposReply](),
		Call:    call(e, Engine.ListRepos),
		Smaller: smallerPage,
	})
}
