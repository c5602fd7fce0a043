package main

import "os/exec"

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
	a.out.Text("", demoTryRun)
	if _, err := exec.LookPath("deepwork"); err != nil {
		a.out.Prose("deepwork is not in your PATH yet; the README says how to install it.")
	}
}
