package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// FileName is the name of the file that makes a folder a job.
const FileName = "job.yml"

// MaxBytes is the largest job.yml that is read: 1 MiB.
const MaxBytes = 1 << 20

// MaxDiagnostics is how many faults of one file are told in full; the last
// Diagnostic of a file that has more says how many.
const MaxDiagnostics = 100

// Parse reads the bytes of a job.yml. dir is the job's folder, absolute; file
// is the name diagnostics carry. It never touches the disk and never panics.
// A nil Job comes with every fault of the file, sorted by position; a Job may
// carry Warnings. The Job keeps source, which must not be changed any more:
// Parse(j.Dir, file, j.Source) gives an equal Job again.
func Parse(dir, file string, source []byte) (j *Job, ds Diagnostics) {
	// The YAML parser has paths that panic on hostile input; a job that brings
	// one about must not take the others down with it.
	defer func() {
		if r := recover(); r != nil {
			j, ds = nil, Diagnostics{{File: file, Message: fmt.Sprintf(
				"cannot be read as YAML (%s): take out what was added last, or write it in a simpler form", clip(fmt.Sprint(r)))}}
		}
	}()

	d := &decoder{faults: faults{file: file}}
	body, ok := d.checkBytes(source)
	if !ok {
		return nil, d.sorted()
	}
	root, ok := d.readTree(body)
	if !ok {
		return nil, d.sorted()
	}
	j = &Job{Dir: dir, Source: source, texts: new(texts)}
	d.job(j, root)
	d.checkSteps(j)
	d.checkWorkflows(j)
	if d.any() {
		return nil, d.sorted()
	}
	sum := sha256.Sum256(source)
	j.Hash = hex.EncodeToString(sum[:])
	j.Warnings = d.sortedWarnings()
	return j, nil
}
