package catalog

import "deepwork/catalog/job"

// A Snapshot is the contents of the job folders at one moment. It is immutable; readers take it
// without a lock (Catalog.Snapshot) and may store it.
type Snapshot struct {
	Version uint64      // grows by one with every published change
	Jobs    []*job.Job  // good jobs, in the order of their folders
	Errors  []LoadError // one entry per bad job, in the same order

	byName map[string]*job.Job   // by name, then by directory name
	errs   map[string]*LoadError // by directory name, then by the served name
}

// A LoadError reports a job that currently cannot be loaded. If its last good definition is still
// served, the job is in Jobs too.
type LoadError struct {
	JobName     string          // the directory's name
	JobDir      string          // absolute
	Diagnostics job.Diagnostics // all faults
}

// Job returns the job with this name, else this directory name, else nil.
func (s *Snapshot) Job(name string) *job.Job { return s.byName[name] }

// Err returns the load error of a job by its directory's name, or by the name of the definition
// that is still served; nil means none.
func (s *Snapshot) Err(name string) *LoadError { return s.errs[name] }
