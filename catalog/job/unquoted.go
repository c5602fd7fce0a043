package job

import (
	"path/filepath"

	"deepwork/actor/durable"
)

// Unquoted returns the faults of the job.yml in a folder; one fault that quotes nothing of the file
// if that is a link which leads out of the folder, since it may be anything of the user's.
func Unquoted(dir string, faults Diagnostics) Diagnostics {
	if len(faults) == 0 {
		return faults
	}
	if err := durable.Inside(dir, filepath.Join(dir, FileName)); err != nil {
		return Diagnostics{{File: FileName, Message: "is not a valid job, and " + err.Error()}}
	}
	return faults
}
