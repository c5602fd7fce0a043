package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/schema"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

// The limits of checking outputs by their schemas.
const (
	maxChecked = 10 << 20 // bytes of a file
	maxMisfits = 20_000   // characters of what is said of all files
)

// schemas returns the schemas of a step's outputs by their names: those that the session began with, so that no edit
// of the job weakens them, or those of a step that was added since.
func (a *sessionActor) schemas(def *machine.Definition, st *job.Step) (map[string]*schema.Schema, error) {
	if !st.HasSchema() && !a.edited(def) {
		return nil, nil
	}
	kept := def
	if !def.Kept || a.edited(def) {
		ref := a.state.Definition
		if p := a.state.Pinned; p != nil && p.Definition.Hash != "" {
			ref = p.Definition
		}
		var err error
		if kept, err = a.engine.definitions.Kept(ref); err != nil && !st.HasSchema() {
			return nil, nil // the session records that it cannot be read
		} else if err != nil {
			return nil, session.NotNow(codes.DefinitionLost, "The outputs of step '%s' of session '%s' cannot be checked: the definition that it began with cannot be read (%v). Nothing has moved; abort the session if that remains so.", st.ID, a.id, err).Because(err)
		}
	}
	began := kept.Job.Of(kept.Workflow.Name).Step(st.ID)
	all := map[string]*schema.Schema{}
	for _, o := range st.Outputs {
		of := o.Schema
		if began != nil && began.Output(o.Name) != nil {
			of = began.Output(o.Name).Schema
		}
		compiled, err := of.Compile(def.Job.Dir)
		if err != nil {
			return nil, session.NotNow(codes.DefinitionLost, "Output '%s' of step '%s' cannot be checked: %v. Nothing has moved.", o.Name, st.ID, err).Because(err)
		}
		if compiled != nil {
			all[o.Name] = compiled
		}
	}
	return all, nil
}

// misfits returns what is wrong with outputs by their schemas, a line for each file, or "". hashes are those of the
// files.
func misfits(ctx context.Context, root string, outputs machine.Outputs, schemas map[string]*schema.Schema, hashes map[string]string) (string, error) {
	var b strings.Builder
	more := 0
	for _, o := range outputs {
		s := schemas[o.Key]
		if s == nil {
			continue
		}
		report := func(what string, data []byte, err error) {
			if err == nil {
				err = misfit(s, data)
			}
			switch line := fmt.Sprintf("- output '%s', %s: %v\n", o.Key, what, err); {
			case err == nil:
			case b.Len()+len(line) > maxMisfits:
				more++
			default:
				b.WriteString(line)
			}
		}
		if o.Value.Text != nil {
			report("the text", []byte(*o.Value.Text), nil)
		}
		for _, path := range o.Value.Paths {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			data, err := gate.ReadFile(root, path, maxChecked)
			if sum := sha256.Sum256(data); err == nil && hex.EncodeToString(sum[:]) != hashes[path] {
				return "", fmt.Errorf("'%s' was changed while it was read", path)
			}
			report(path, data, err)
		}
	}
	if more > 0 {
		fmt.Fprintf(&b, "- and %s more that do not satisfy their schemas\n", machine.Count(more, "file"))
	}
	return b.String(), nil
}

// misfit returns why a document does not satisfy a schema, or nil.
func misfit(s *schema.Schema, data []byte) error {
	value, err := schema.Document(data)
	if err != nil {
		return fmt.Errorf("it is not YAML or JSON: %w", err)
	}
	err = s.CheckDocument(value)
	wrong, ok := errors.AsType[*schema.Error](err)
	if !ok {
		return err
	}
	all := make([]string, len(wrong.Violations))
	for i, v := range wrong.Violations {
		all[i] = fmt.Sprintf("%s (%s)", v, v.Keyword)
	}
	return errors.New(strings.Join(all, "; "))
}

// unfit answers a call whose outputs do not satisfy their schemas. It is no attempt at the step's reviews, and
// nothing that an agent can say passes over it.
func (a *sessionActor) unfit(c *candidate, how Reviewing) (*finished, error) {
	st := c.plan.Step
	if was := a.state.Progress(st.ID); was == nil || was.Unfit == nil || was.Unfit.Digest != c.digest {
		next := a.state.Misfit(st.ID, machine.Shown{At: a.engine.now(), Digest: c.digest, Files: c.files, Faults: c.m.misfits})
		if err := a.commit(c.m.MovedBy, next, nil); err != nil {
			return nil, err
		}
	}
	person := ""
	if how.Override != config.OverrideNever {
		person = fmt.Sprintf(" Only a person may pass over this: if the user wants that, ask them to run `%s` at a terminal, in the project, and hand in the same outputs again.", overrideCommand(a.id, st.ID))
	}
	return a.needsWork(c.def.Notice, fmt.Sprintf("Outputs of step '%s' do not satisfy their schemas:\n%sCorrect them, and call finished_step again. Nothing was reviewed, and no attempt was used up.%s", st.ID, c.m.misfits, person)), nil
}
