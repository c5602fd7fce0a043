package job

// FileName is the name of the file that makes a folder a job.
const FileName = "job.yml"

// MaxBytes is the largest job.yml that is read: 1 MiB.
const MaxBytes = 1 << 20

// Parse reads the bytes of a job.yml. dir is the job's folder, absolute; file
// is the name diagnostics carry. It never touches the disk and never panics.
// A nil Job comes with every fault of the file; a Job may carry Warnings.
func Parse(dir, file string, source []byte) (*Job, Diagnostics) {
	panic("not yet")
}

// Load reads and parses dir/job.yml: a file that is missing, unreadable, not a
// regular file or larger than MaxBytes is a Diagnostic too.
func Load(dir string) (*Job, Diagnostics) {
	panic("not yet")
}

// CheckFiles tells what a job's folder lacks: instructions files, prompt files
// and scripts of hooks that do not exist, are not regular files, are not UTF-8
// text or lead outside the folder. It is what `deepwork validate` adds to Parse.
func CheckFiles(j *Job) Diagnostics {
	panic("not yet")
}

// Instructions reads the instructions file of a step, now, following symlinks
// only while they stay inside the job's folder. Errors name the file.
func Instructions(j *Job, s *Step) (string, error) {
	panic("not yet")
}

// Schema returns the JSON Schema (draft 2020-12) of job.yml.
func Schema() []byte {
	panic("not yet")
}
