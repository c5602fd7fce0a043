package job

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/internal/follow"
	"deepwork/catalog/internal/yamltree"
)

// MaxInstructionsBytes is the largest instructions file that is read: 1 MiB.
const MaxInstructionsBytes = 1 << 20

// Instructions reads the instructions file of a step, following symlinks only while
// they stay inside the job's folder, without its byte order mark. A file that has not
// changed since it was last read is not read again; one that seems to be in the middle
// of a save is waited for, so it may block for half a second. Errors name the job, the
// step, the file and the remedy; errors.Is recognizes fs.ErrNotExist and
// fs.ErrPermission (seed 000, 001.3.10).
func Instructions(j *Job, s *Step) (string, error) { return instructions(j, s, follow.SaveBound) }

// InstructionsNow is Instructions for callers that can do without: it waits for a save
// for 20 ms at most.
func InstructionsNow(j *Job, s *Step) (string, error) { return instructions(j, s, 2*follow.Settle) }

func instructions(j *Job, s *Step, bound time.Duration) (string, error) {
	text, err := j.texts.read(j.Dir, s.InstructionsFile, bound)
	if err != nil {
		return "", fmt.Errorf("reading the instructions of step %q of job %q: %w", s.ID, j.Name,
			&instructionsError{file: s.InstructionsFile, fault: err})
	}
	return text, nil
}

type instructionsError struct {
	file  string
	fault *insideFault
}

func (e *instructionsError) Error() string {
	return fmt.Sprintf("the instructions_file %q %s", e.file, e.fault.message)
}

func (e *instructionsError) Unwrap() error { return e.fault.err }

// CheckFiles tells what a job's folder lacks: instructions files, prompt files
// and scripts of hooks that do not exist, are not regular files, are not UTF-8
// text or lead outside the folder, each where job.yml names it. It is what
// `deepwork validate` adds to Parse. It reads the files, and so may block.
func CheckFiles(j *Job) Diagnostics {
	d := decoder{Decoder: yamltree.Decoder{Dialect: &dialect, File: FileName}}
	for i := range j.Steps {
		s := &j.Steps[i]
		d.checkFile(j, s.instructionsAt, fmt.Sprintf("steps[%d].instructions_file", i), s.InstructionsFile)
		for _, hooks := range [][]Hook{s.Hooks.AfterAgent, s.Hooks.BeforeTool, s.Hooks.BeforePrompt} {
			for _, h := range hooks {
				if name := h.PromptFile + h.Script; name != "" {
					d.checkFile(j, h.at, h.path, name)
				}
			}
		}
	}
	return d.All()
}

func (d *decoder) checkFile(j *Job, at yamltree.Position, path, name string) {
	data, fault := readInside(j.Dir, name)
	if fault != nil {
		d.FaultIn(at, path, "%s %s", yamltree.Quote(name), fault.message)
		return
	}
	if len(bytes.TrimSpace(data)) == 0 {
		d.WarnIn(at, path, "%s is empty: write what it should say", yamltree.Quote(name))
	}
}

// An insideFault is why a file of a job cannot be used, as the end of a
// sentence that begins with its name.
type insideFault struct {
	message string
	err     error
}

// readInside reads a text file of a job's folder.
func readInside(dir, name string) ([]byte, *insideFault) {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) {
		return nil, &insideFault{message: "is not a path inside of the job's folder: write one relative to it, such as steps/draft.md"}
	}
	data, fault := readResolved(dir, local)
	if fault != nil {
		return nil, fault
	}
	data = bytes.TrimPrefix(data, utf8BOM)
	if at, found := yamltree.NotUTF8(data); found {
		return nil, &insideFault{message: fmt.Sprintf("is not UTF-8 text (line %d): save the file as UTF-8", yamltree.PositionAt(data, at).Line)}
	}
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return nil, &insideFault{message: fmt.Sprintf("is not a text file, it has a NUL byte in line %d: put a text in its place", yamltree.PositionAt(data, at).Line)}
	}
	return data, nil
}

// readResolved resolves symlinks first, since os.Root refuses absolute ones
// even where they point inside, and then opens through os.Root what they led
// to, so that a link exchanged in between does not lead outside either.
func readResolved(dir, local string) ([]byte, *insideFault) {
	folder, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, systemFault(err, fmt.Sprintf("cannot be read, since its job's folder %s is gone: put it back", dir))
	}
	resolved, err := filepath.EvalSymlinks(filepath.Join(folder, local))
	if err != nil {
		return nil, systemFault(err, fmt.Sprintf("does not exist in %s: write the file, or correct the path in %s", dir, FileName))
	}
	inside, err := filepath.Rel(folder, resolved)
	if err != nil || inside == ".." || strings.HasPrefix(inside, ".."+string(filepath.Separator)) {
		return nil, &insideFault{message: fmt.Sprintf("leads out of the job's folder %s, to %s: copy the file into the folder", dir, resolved)}
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, systemFault(err, fmt.Sprintf("cannot be read, since its job's folder %s is gone: put it back", dir))
	}
	defer root.Close()
	data, fault := readRegular(root.Stat, root.OpenFile, inside, MaxInstructionsBytes)
	switch {
	case fault == nil:
		return data, nil
	case fault.tooLarge:
		return nil, &insideFault{message: fmt.Sprintf("is larger than %d bytes (1 MiB): shorten it, or let it refer to other files", MaxInstructionsBytes)}
	case fault.mode != 0:
		return nil, &insideFault{message: fmt.Sprintf("is %s, not a regular file: put a text file in its place", durable.Kind(fault.mode))}
	}
	return nil, systemFault(fault.err, fmt.Sprintf("does not exist in %s: write the file, or correct the path in %s", dir, FileName))
}

func systemFault(err error, missing string) *insideFault {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &insideFault{message: missing, err: err}
	case errors.Is(err, fs.ErrPermission):
		return &insideFault{message: "cannot be read, permission is denied: make it readable for the user that runs deepwork", err: err}
	}
	return &insideFault{message: fmt.Sprintf("cannot be read: %v", err), err: err}
}
