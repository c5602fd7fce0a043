package main

import (
	"fmt"
	"os"
	"path/filepath"

	"deepwork/actor/process"
	"deepwork/session/board"
	"deepwork/session/state"
)

// clientFolderEnv is the variable in which Claude Code passes the folder of its project to the servers that it starts.
const clientFolderEnv = "CLAUDE_PROJECT_DIR"

// servedRoot returns the project of a server: --path, or the project around the folder in which the client started it,
// else the client's own. notice tells agents that it is another folder. refusal says why no project begins there: a
// client may start its server in any folder, which does not make that a project.
func (a *app) servedRoot() (root, notice string, refusal error, err error) {
	here, err := a.givenRoot()
	if err != nil || a.path != "" && filepath.Clean(a.path) != "." || board.ByAgent(os.Getenv) {
		return here, "", nil, err
	}

	root = here
	for _, dir := range []string{here, os.Getenv(clientFolderEnv)} {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) {
			continue
		}
		found := state.Upwards(dir)
		if isProject(found) {
			root = found
			break
		}
		if refusal := notAProject(root); refusal != nil {
			root = dir
		}
	}

	if root != here {
		notice = fmt.Sprintf("This server was started in %s, and serves the project %s: paths are relative to that.",
			here, root)
		process.Avoid(root)
	}
	if !isProject(root) {
		refusal = notAProject(root)
	}
	if refusal != nil {
		notice = "Tell the user: " + refusal.Error() + "."
	}
	return root, notice, refusal, nil
}

// isProject reports whether a folder is a project already.
func isProject(dir string) bool {
	if folder, err := state.Find(dir); err == nil {
		if _, err := folder.ID(); err == nil {
			return true
		}
	}
	return fileExists(filepath.Join(dir, ".deepwork")) && !aroundHome(dir)
}

// notAProject returns why a folder that is no project does not become one, or nil.
func notAProject(dir string) error {
	where := "in the home folder or above it"
	if top := board.TopLevel(dir); !aroundHome(dir) {
		if top == "" || top == dir || aroundHome(top) {
			return nil
		}
		where = "in a folder of the repository " + inline(top)
	}
	return fmt.Errorf("%s is not a project, and none begins %s without being asked for: start the server with --path "+
		"and the folder of a project", inline(dir), where)
}

// aroundHome reports whether a folder is or contains the home folder.
func aroundHome(dir string) bool {
	return process.Inside(process.Resolved(dir), process.Resolved(process.Home()))
}
