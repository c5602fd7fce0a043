package config

import (
	"os"
	"path/filepath"
	"strings"
)

// Toolsets are the sets of tools that a server can offer (DESIGN "Tool surface").
var Toolsets = []string{"workflows", "remote", "board", "source"}

// DefaultToolsets are the sets that a server offers unless others are chosen.
var DefaultToolsets = Toolsets[:3:3]

// KnownExecutors are the executors with built-in commands, so that the config need not give one.
var KnownExecutors = []string{"CLAUDE_CODE", "CODEX", "CURSOR_AGENT", "GEMINI", "OPENCODE"}

// The environment variables that the program reads or sets for agents.
const (
	// JobsFoldersEnv lists more job folders: absolute paths, separated as the system separates
	// lists (`:`, on Windows `;`).
	JobsFoldersEnv = "DEEPWORK_ADDITIONAL_JOBS_FOLDERS"
	AttemptEnv     = "DEEPWORK_ATTEMPT_ID" // the id of the attempt that an agent works in
	BoardEnv       = "DEEPWORK_BOARD"      // the file of that attempt's board, absolute
	StoreEnv       = "DEEPWORK_STORE"      // the URL of the store, as in the user's own config
	SessionEnv     = "DEEPWORK_SESSION_ID" // the workflow session and the step that the agent of a run does
	StepEnv        = "DEEPWORK_STEP_ID"
	MCPURLEnv      = "DEEPWORK_MCP_URL" // the server to which it reports, and a file as .mcp.json that names it
	MCPConfigEnv   = "DEEPWORK_MCP_CONFIG"
	ProjectEnv     = "DEEPWORK_PROJECT" // the name of the project in that store
)

// JobsFolders returns the job folders of JobsFoldersEnv. It ignores relative ones, since the
// working directory of a server is its client's choice.
func JobsFolders() (folders, relative []string) {
	for _, dir := range filepath.SplitList(os.Getenv(JobsFoldersEnv)) {
		switch dir = strings.TrimSpace(dir); {
		case filepath.IsAbs(dir):
			folders = append(folders, filepath.Clean(dir))
		case dir != "":
			relative = append(relative, dir)
		}
	}
	return folders, relative
}
