package session

import "slices"

// A Finding is something that `deepwork check` reports about files or rows.
type Finding struct {
	Where string // a file or a row of the board: absolute paths, ids
	What  string // what is wrong with it, as a sentence without its full stop
	Do    string // what can be done about it, likewise
	// Note marks a finding that is not an error: something that a crash left and the next server
	// removes, or that people may want to know.
	Note bool
}

// A Report is the result of inspecting one part of a project. Counts are in the order in which they
// are reported.
type Report struct {
	Counts   []Count
	Findings []Finding
	Live     bool // a server works on the project, so findings may be work in progress
}

// A Count is a number of things: 3, "task", and details such as "1 in progress", or "".
type Count struct {
	N    int
	What string // in the singular
	Of   string
}

// Fault adds a finding that is an error.
func (r *Report) Fault(where, what, do string) {
	r.Findings = append(r.Findings, Finding{Where: where, What: what, Do: do})
}

// Note adds a finding that is not an error.
func (r *Report) Note(where, what, do string) {
	r.Findings = append(r.Findings, Finding{Where: where, What: what, Do: do, Note: true})
}

// Confirmed returns the later report with only the findings that r has too: work that was in
// progress is no longer among them.
func (r *Report) Confirmed(later Report) Report {
	later.Findings = slices.DeleteFunc(later.Findings, func(f Finding) bool {
		return !slices.Contains(r.Findings, f)
	})
	return later
}
