package job

import (
	"crypto/sha256"
	"encoding/hex"

	"gopkg.in/yaml.v3"

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
	// A list of entries of a workflow; a faulty one keeps its place.
	"entries": func(d *yamltree.Decoder, v value, to any) {
		entries := to.(*[]Entry)
		d.List(v, "a list of step ids, or of lists of them", func(_ int, v value) {
			var e Entry
			member := func(what string, v value) {
				id, _ := d.Text(v, what, "filled")
				e = append(e, id)
			}
			if v.Target().Kind != yaml.SequenceNode {
				member("the id of a step, or a list of ids that run concurrently", v)
			} else if count, _ := d.List(v, "", func(_ int, v value) {
				if v.Target().Kind == yaml.SequenceNode {
					d.Fault(v.At(), "is a list inside of a group: groups do not nest, name the step itself")
					e = append(e, "")
					return
				}
				member("the id of a step", v)
			}); count == 0 {
				d.Fault(v.At(), "is an empty group: name the steps that run concurrently, or remove it")
			}
			*entries = append(*entries, e)
		})
	},
	"schema": schemaForm,
	// Who judges a review.
	"judge": func(d *yamltree.Decoder, v value, to any) {
		_, *to.(*bool) = d.Text(v, "human", "judge")
	},
}
