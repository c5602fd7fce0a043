package job

import (
	"bytes"
	"fmt"
	"time"

	"deepwork/catalog/internal/follow"
	"deepwork/catalog/internal/yamltree"
)

// Instructions returns the instructions file of a step without its byte order mark. It follows
// symlinks only while they stay inside the job's folder. A file that has not changed since it was
// last read is not read again; if it seems to be in the middle of a save, Instructions waits, so it
// may block for half a second. Errors name the job, the step, the file and the remedy; errors.Is
// recognizes fs.ErrNotExist and fs.ErrPermission (seed 000, 001.3.10).
func Instructions(j *Job, s *Step) (string, error) { return instructions(j, s, follow.SaveBound) }

// InstructionsNow is Instructions for callers that can do without the text: it waits at most 20 ms
// for a save.
func InstructionsNow(j *Job, s *Step) (string, error) { return instructions(j, s, 2*follow.Settle) }

func instructions(j *Job, s *Step, bound time.Duration) (string, error) {
	text, err := j.texts.read(j.Dir, s.InstructionsFile, bound)
	if err != nil {
		return "", fmt.Errorf("reading the instructions of step %q of job %q: %w", s.ID, j.Name,
			&instructionsError{s.InstructionsFile, err})
	}
	return text, nil
}

type instructionsError struct {
	file  string
	fault *fileFault
}

func (e *instructionsError) Error() string {
	return fmt.Sprintf("the instructions_file %q %s", e.file, e.fault.message)
}

func (e *instructionsError) Unwrap() error { return e.fault.err }

// CheckFiles returns the faults of the files of a job: instructions files, prompt files and scripts
// of hooks that do not exist, are not regular files, are not UTF-8 text or are outside the folder,
// each at its position in job.yml. `deepwork validate` calls it after Parse. It reads the files,
// and so may block.
func CheckFiles(j *Job) Diagnostics {
	d := newDecoder(FileName)
	d.Open(j.Source)
	check := func(name string, path ...any) {
		if name == "" {
			return
		}
		data, fault := readInside(j.Dir, name)
		if fault != nil {
			d.FaultAt(path, "%s %s", yamltree.Quote(name), fault.message)
		} else if len(bytes.TrimSpace(data)) == 0 {
			d.WarnAt(path, "%s is empty: write what it should say", yamltree.Quote(name))
		}
	}
	for i := range j.Steps {
		s := &j.Steps[i]
		check(s.InstructionsFile, "steps", i, "instructions_file")
		for moment, hooks := range map[string][]Hook{"after_agent": s.Hooks.AfterAgent, "before_tool": s.Hooks.BeforeTool, "before_prompt": s.Hooks.BeforePrompt} {
			for k, h := range hooks {
				check(h.PromptFile, "steps", i, "hooks", moment, k, "prompt_file")
				check(h.Script, "steps", i, "hooks", moment, k, "script")
			}
		}
		for k, h := range s.StopHooks {
			check(h.PromptFile, "steps", i, "stop_hooks", k, "prompt_file")
			check(h.Script, "steps", i, "stop_hooks", k, "script")
		}
	}
	return d.All()
}
