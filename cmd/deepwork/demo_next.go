package main

import (
	"os/exec"
	"runtime"
	"strings"

	"deepwork/session/show"
)

// demoTries are commands for a newcomer's own project, and what they are for.
var demoTries = [][2]string{
	{"  deepwork init", "add an example job and connect Claude Code (--client: another client)"},
	{"  claude", `ask it: "Start the workflow write of release_notes."`},
	{"  deepwork ui", "see in a browser what runs, and what waits for you"},
	{"  deepwork trust", "allow deepwork to start agents in this project, as the next command does"},
}

// demoTryRun has no room beside it.
const demoTryRun = `  deepwork run release_notes/write --goal 1.0 --executor CLAUDE_CODE`

// demoNext prints what to try after the demo.
func (a *app) demoNext() {
	a.out.Prose("\nWhat to try next, in one of your git repositories:")
	a.out.Pairs(demoTries)
	typed(a.out, demoTryRun)
	if _, err := exec.LookPath("deepwork"); err != nil {
		a.out.Prose("deepwork is not in your PATH yet; the README says how to install it.")
	}
}

// typed prints a command that can be copied: if the screen is too narrow, options are on lines of their own,
// after a backslash, which the shells of Windows do not know.
func typed(to *show.Screen, command string) {
	if width := to.Width(); width > 0 && runtime.GOOS != "windows" && show.Columns(command) > width {
		blanks := command[:len(command)-len(strings.TrimLeft(command, " "))]
		command = strings.ReplaceAll(command, " --", " \\\n"+blanks+"    --")
	}
	to.Text("", command)
}
