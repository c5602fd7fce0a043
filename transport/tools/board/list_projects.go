package board

import "deepwork/transport/tool"

// addListProjects registers list_projects (seed 004, "MCP task tool set").
func addListProjects(s *tool.Set, e Engine) {
	add(s, e, Engine.ListProjects, tool.Tool{
		Name: "list_projects", Title: "List projects",
		Description: "Lists the board's projects. Call it first.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input:       tool.InputSchema(listLimit(), cursor()),
		Smaller:     smallerPage,
	})
}
