package session

import "slices"

// A Finding is something that `deepwork check` has to say of what is on disk.
type Finding struct {
	Where string // a file, or a row of the board: absolute paths, ids
	What  string // what is wrong with it, as a sentence without its full stop
	Do    string // what can be done, likewise
	// Note reports that nothing is wrong: what a crash has left and the next server
	// clears up, or what people may want to know.
	Note bool
}

// A Report is what an inspection of one part of a project found. Counts are in
// the order in which they are reported.
type Report struct {
	Counts   []Count
	Findings []Finding
	Live     bool // a server works on the project: what was found may have been under way
}

// A Count is how many of something there are: 3, "task", and "1 in progress" or
// "" for more about them.
type Count struct {
	N    int
	What string // in the singular
	Of   string
}

// Fault adds something that is wrong.
func (r *Report) Fault(where, what, do string) {
	r.Findings = append(r.Findings, Finding{Where: where, What: what, Do: do})
}

// Note adds something that is no fault.
func (r *Report) Note(where, what, do string) {
	r.Findings = append(r.Findings, Finding{Where: where, What: what, Do: do, Note: true})
}

// Confirmed keeps of the findings those that another look, at the same things
// and later, had too: what was only under way is gone by then.
func (r *Report) Confirmed(later Report) Report {
	later.Findings = slices.DeleteFunc(later.Findings, func(f Finding) bool {
		return !slices.Contains(r.Findings, f)
	})
	return later
}
