package board

import "deepwork/transport/tool"

// addListRepos registers list_repos (seed 004, "MCP task tool set").
func addListRepos(s *tool.Set, e Engine) {
	add(s, e, Engine.ListRepos, tool.Tool{
		Name: "list_repos", Title: "List repositories",
		Description: "Lists a project's git repositories.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input:       tool.InputSchema(projectID(), listLimit(), cursor()),
		Smaller:     smallerPage,
	})
}
