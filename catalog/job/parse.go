package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"deepwork/catalog/internal/yamltree"
)

// FileName is the name of the file that makes a folder a job.
const FileName = "job.yml"

// MaxBytes is the maximum size of a job.yml: 1 MiB.
const MaxBytes = 1 << 20

// Parse reads the bytes of a job.yml. dir is the job's folder, absolute; file is its name in
// diagnostics. It never touches the disk and never panics. With a nil Job it returns all faults of
// the file, sorted by position; a Job may have Warnings. The Job retains source, which must not be
// changed afterwards: Parse(j.Dir, file, j.Source) gives an equal Job.
func Parse(dir, file string, source []byte) (j *Job, ds Diagnostics) {
	// The YAML parser panics on some hostile input; such a job must not stop the others.
	defer func() {
		if r := recover(); r != nil {
			j, ds = nil, Diagnostics{{File: file, Message: fmt.Sprintf(
				"cannot be read as YAML (%s): take out what was added last, or write it in a simpler form", yamltree.Clip(fmt.Sprint(r)))}}
		}
	}()

	d := &decoder{Decoder: yamltree.Decoder{Dialect: &dialect, File: file}}
	root, ok := d.document(source)
	if !ok {
		return nil, d.Diagnostics()
	}
	j = &Job{Dir: dir, Source: source, texts: new(texts)}
	d.Mapping(yamltree.Self(root), d.job(j))
	d.checkSteps(j)
	d.checkWorkflows(j)
	if d.Faults() > 0 {
		return nil, d.Diagnostics()
	}
	sum := sha256.Sum256(source)
	j.Hash = hex.EncodeToString(sum[:])
	j.Warnings = d.Warnings()
	return j, nil
}
