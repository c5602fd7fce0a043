package catalog

import "deepwork/catalog/job"

// A Snapshot is what the job folders hold at one moment. It is immutable;
// readers take it without a lock (Catalog.Snapshot) and may keep it.
type Snapshot struct {
	Version uint64      // grows by one with every published change
	Jobs    []*job.Job  // good jobs, in the order of their folders
	Errors  []LoadError // one entry a bad job, in the same order

	byName map[string]*job.Job   // by name, then by directory name
	errs   map[string]*LoadError // by directory name, then by the served name
}

// A LoadError is a job that could not be loaded as it is now. A job whose
// last good definition is still served is in Jobs too.
type LoadError struct {
	JobName     string          // the directory's name
	JobDir      string          // absolute
	Diagnostics job.Diagnostics // every fault
}

// Job finds a job by its name, else by its directory's name, else nil.
func (s *Snapshot) Job(name string) *job.Job { return s.byName[name] }

// Err finds the load error of a job by its directory's name, or by the name of
// the definition that is still served; nil means none.
func (s *Snapshot) Err(name string) *LoadError { return s.errs[name] }
