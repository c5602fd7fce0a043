package board

import "deepwork/transport/tool"

// addListProjects registers list_projects (seed 004, "MCP task tool set").
func addListProjects(s *tool.Set, e Engine) {
	add(s, e, Engine.ListProjects, tool.Tool{
		Name: "list_projects", Title: "List projects",
		Description: "Lists the projects of the task board, newest first. Call it first when you work with tasks: list_tasks, create_task and list_repos " +
			"take a project_id. The folder that the server works on is a project by itself; more stand in the config.\n\n" +
			"Returns projects, count, total and next_cursor, which is null when there are no more.",
		Hints:   tool.Hints{ReadOnly: true, Idempotent: true},
		Input:   tool.InputSchema(listLimit(), cursor()),
		Smaller: smallerPage,
	})
}
