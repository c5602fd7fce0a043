package transport

import "deepwork/session/attempt"

// addListProjects registers list_projects (seed 004, "MCP task tool set").
func addListProjects(s *Server) {
	addTool(s, tool[attempt.ListProjectsArgs, *attempt.ProjectsReply]{
		name: "list_projects", title: "List projects",
		description: "Lists the projects of the task board, newest first. Call it first when you work with tasks: list_tasks, create_task and list_repos " +
			"take a project_id. The folder that the server works on is a project by itself; more stand in the config.\n\n" +
			"Returns projects, count, total and next_cursor, which is null when there are no more.",
		hints:  hints{readOnly: true, idempotent: true},
		input:  inputSchema(listLimit(), cursor()),
		output: boardSchema[attempt.ProjectsReply](),
		call:   onBoard(s, boardEngine.ListProjects),
	})
}

// addListRepos registers list_repos (seed 004, "MCP task tool set").
func addListRepos(s *Server) {
	addTool(s, tool[attempt.ListReposArgs, *attempt.ReposReply]{
		name: "list_repos", title: "List repositories",
		description: "Lists the git repositories of a project, newest first. start_task_attempt takes their repo_id.\n\n" +
			"Returns repos, count, total and next_cursor, which is null when there are no more.",
		hints:  hints{readOnly: true, idempotent: true},
		input:  inputSchema(projectID(), listLimit(), cursor()),
		output: boardSchema[attempt.ReposReply](),
		call:   onBoard(s, boardEngine.ListRepos),
	})
}
