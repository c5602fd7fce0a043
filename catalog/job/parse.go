package job

import (
	"crypto/sha256"
	"encoding/hex"

	"deepwork/catalog/internal/yamltree"
)

// FileName is the name of the file that makes a folder a job.
const FileName = "job.yml"

// MaxBytes is the maximum size of a job.yml: 1 MiB.
const MaxBytes = yamltree.MaxBytes

// A Diagnostic is one fault, or one warning, of a file, with its position.
type Diagnostic = yamltree.Diagnostic

// Diagnostics are all faults of one file, ordered by position.
type Diagnostics = yamltree.Diagnostics

// MaxDiagnostics is the number of faults of one file that are reported in full; one more Diagnostic
// gives the number of the others.
const MaxDiagnostics = yamltree.MaxDiagnostics

// A decoder turns the tree of one file into a Job, and collects all faults on the way. What the tags
// of the model say is also in job.schema.json, for editors; a test compares the two.
type decoder struct{ yamltree.Decoder }

type value = yamltree.Value

func newDecoder(file string) *decoder {
	return &decoder{yamltree.Decoder{File: file, Texts: rules, Forms: forms}}
}

// Parse reads the bytes of a job.yml. dir is the job's folder, absolute; file is its name in
// diagnostics. It never touches the disk and never panics. With a nil Job it returns all faults of
// the file, sorted by position; a Job may have Warnings. The Job retains source, which must not be
// changed afterwards: Parse(j.Dir, file, j.Source) gives an equal Job.
func Parse(dir, file string, source []byte) (*Job, Diagnostics) {
	d := newDecoder(file)
	root := d.Open(source)
	if root == nil {
		if d.Faults() == 0 {
			d.FaultIn(yamltree.Position{Line: 1, Column: 1}, "", "is empty: write name, version, summary, common_job_info_provided_to_all_steps_at_runtime, steps and workflows")
		}
		return nil, d.Diagnostics()
	}
	j := &Job{Dir: dir, Source: source, texts: new(texts)}
	if was := d.earlier(); was != "" {
		d.reportEarlier(was, dir)
		return nil, d.Diagnostics()
	}
	if d.isFormat2() {
		d.decode2(yamltree.Self(root), j)
	} else {
		j.Format = 1
		d.Decode(yamltree.Self(root), j)
		d.check(j)
	}
	if d.Faults() > 0 {
		return nil, d.Diagnostics()
	}
	sum := sha256.Sum256(source)
	j.Hash = hex.EncodeToString(sum[:])
	j.Warnings = d.Warnings()
	j.see()
	return j, nil
}

// NameFault returns a fault of the job's name, in its file.
func (j *Job) NameFault(file, message string) Diagnostic { return j.at(file, message, "name") }

// ExecutorWarning returns a warning about the executor of the i-th step, in the job's file.
func (j *Job) ExecutorWarning(i int, file, message string) Diagnostic {
	g := j.at(file, message, "steps", i, "executor")
	g.Warning = true
	return g
}

// at returns a fault of the value at a path in the job's file.
func (j *Job) at(file, message string, path ...any) Diagnostic {
	d := newDecoder(file)
	d.Open(j.Source)
	return d.At(message, path...)
}

// forms are the forms of values in the tags of the model.
var forms = map[string]yamltree.Form{
	"entries":     entriesForm,
	"body":        bodyForm,
	"call inputs": callInputs,
	"schema":      schemaForm,
	// Who judges a review.
	"judge": func(d *yamltree.Decoder, v value, to any) {
		_, *to.(*bool) = d.Text(v, "human", "judge")
	},
}
