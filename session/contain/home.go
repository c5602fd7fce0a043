package contain

import "path/filepath"

// Outer says under what a program runs that the machine itself contains.
const Outer = "contained by this machine (outer)"

// HomeOf returns the folder with the home that an executor's agents keep in a project, given the folder of the
// project's state.
func HomeOf(state, executor string) string {
	return filepath.Join(state, "contained", "homes", executor)
}

// ReviewerHomeOf returns the folder with the home that an executor keeps as a reviewer, which no agent can write.
func ReviewerHomeOf(state, executor string) string {
	return filepath.Join(state, "contained", "reviewers", executor)
}

// CacheOf returns the folder with the cache of a project's agents.
func CacheOf(state string) string { return filepath.Join(state, "contained", "cache") }

// ReadOnly takes from the program that it may write what it sees of the host.
func (p *Plan) ReadOnly() {
	for i := range p.Mounts {
		p.Mounts[i].Write = p.Mounts[i].Write && p.Mounts[i].Source == ""
	}
}
