package session

import "slices"

// A Finding is a problem in files or rows that `deepwork check` reports.
type Finding struct {
	Where string // a file or a row of the board: absolute path or id
	What  string // what is wrong, as a sentence without a full stop
	Do    string // what to do about it, likewise
	// Note marks a finding that is not an error: something that a crash left and the next server removes, or
	// that is merely worth knowing.
	Note bool
}

// A Report is the result of inspecting one part of a project. Counts are in the order of the report.
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

// Confirmed returns the later report with only those findings that r has, too: it leaves out work that was in
// progress.
func (r *Report) Confirmed(later Report) Report {
	later.Findings = slices.DeleteFunc(later.Findings, func(f Finding) bool {
		return !slices.Contains(r.Findings, f)
	})
	return later
}
