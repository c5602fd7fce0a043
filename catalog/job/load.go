package job

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/xslices"
	"deepwork/catalog/internal/follow"
	"deepwork/catalog/internal/yamltree"
)

// MaxInstructionsBytes is the maximum size of an instructions file: 1 MiB.
const MaxInstructionsBytes = 1 << 20

// Load reads and parses dir/job.yml. A file that is missing, unreadable, not regular or larger than MaxBytes
// gives a Diagnostic. The file may be a symlink to anywhere. It refuses a pipe or device without waiting for
// it; reading a regular file may block as long as the disk does.
func Load(dir string) (*Job, Diagnostics) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, Diagnostics{{
			File:    FileName,
			Message: fmt.Sprintf("the folder %s cannot be resolved: %v", yamltree.Quote(dir), err),
		}}
	}
	source, _, err := durable.ReadLinked(filepath.Join(abs, FileName), MaxBytes)
	if err != nil {
		return nil, Diagnostics{{File: FileName, Message: jobFile.fault(err, abs).message}}
	}
	return Parse(abs, FileName, source)
}

// A fileFault is the reason why a file of a job is unusable, as the end of a sentence that begins with its
// name.
type fileFault struct {
	message string
	err     error // the system's error, or nil
}

// A fileRule says what to do about a file that cannot be read.
type fileRule struct{ missing, large, put string }

var (
	jobFile = fileRule{"write it, or remove the folder",
		"move long texts to instructions files, or make two jobs of it", "put a file in its place"}
	textFile = fileRule{"write the file, or correct the path in " + FileName,
		"shorten it, or let it refer to other files", "put a text file in its place"}
)

// fault returns why a file of a job's folder could not be read.
func (rule fileRule) fault(err error, dir string) *fileFault {
	if bad, ok := errors.AsType[*durable.BadFileError](err); ok {
		remedy := map[error]string{durable.ErrNotRegular: rule.put, durable.ErrTooLarge: rule.large,
			durable.ErrOutside: "copy the file into the job's folder"}[bad.Err]
		return &fileFault{message: bad.Reason + ": " + cmp.Or(remedy, "try again")}
	}

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &fileFault{fmt.Sprintf("does not exist in %s: %s", dir, rule.missing), err}
	case errors.Is(err, fs.ErrPermission):
		return &fileFault{"cannot be read, permission is denied: make it readable for the user that runs deepwork", err}
	}
	return &fileFault{fmt.Sprintf("cannot be read: %v", err), err}
}

// readInside reads a text file of a job's folder, without its byte order mark.
func readInside(dir, name string) ([]byte, *fileFault) {
	if name = filepath.FromSlash(name); !filepath.IsLocal(name) {
		return nil,
			&fileFault{message: "is not a path inside of the job's folder: write one relative to it, such as " +
				"steps/draft.md"}
	}
	data, err := durable.ReadIn(dir, name, MaxInstructionsBytes)
	if _, gone := os.Stat(dir); err != nil && errors.Is(gone, fs.ErrNotExist) {
		return nil, &fileFault{fmt.Sprintf("cannot be read, since its job's folder %s is gone: put it back", dir), err}
	}
	if err != nil {
		return nil, textFile.fault(err, dir)
	}

	data = bytes.TrimPrefix(data, yamltree.BOM)
	if at, found := yamltree.NotUTF8(data); found {
		return nil, &fileFault{message: fmt.Sprintf("is not UTF-8 text (line %d): save the file as UTF-8",
			yamltree.PositionAt(data, at).Line)}
	}
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return nil,
			&fileFault{message: fmt.Sprintf("is not a text file, it has a NUL byte in line %d: put a text in its place",
				yamltree.PositionAt(data, at).Line)}
	}
	return data, nil
}

// Unquoted returns the errors in the job.yml in a folder; if the file is a link that leads out of the folder, it's one
// error that quotes nothing, since the file may be anything of the user's.
func Unquoted(dir string, faults Diagnostics) Diagnostics {
	if len(faults) == 0 {
		return faults
	}
	if err := durable.Inside(dir, filepath.Join(dir, FileName)); err != nil {
		return Diagnostics{{File: FileName, Message: "is not a valid job, and " + err.Error()}}
	}
	return faults
}

// Instructions returns the instructions file of a step without its byte order mark. It follows symlinks only
// while they stay inside the job's folder. An unchanged file is not read again. If the file seems to be in
// the middle of a save, Instructions waits, so it may block for half a second. Errors name the job, the step,
// the file and the remedy; errors.Is recognizes fs.ErrNotExist and fs.ErrPermission (seed 000, 001.3.10).
func Instructions(j *Job, s *Step) (string, error) { return instructions(j, s, follow.SaveBound) }

// InstructionsNow is Instructions for callers that can do without the text: it waits at most 20 ms for a
// save.
func InstructionsNow(j *Job, s *Step) (string, error) { return instructions(j, s, 2*follow.Settle) }

func instructions(j *Job, s *Step, bound time.Duration) (string, error) {
	if s.Instructions != "" || s.Call != nil {
		return s.Instructions, nil
	}

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

// CheckFiles returns errors in a job that only its folder shows, and warnings about what is probably
// unintended: instructions files and schemas that do not exist, are not regular files, are not UTF-8 text or
// are outside the folder; hooks, which nothing runs, with their files; and inputs that no step makes. Each
// has its position in job.yml. `deepwork validate` calls it after Parse. It reads the files, and so may
// block.
func CheckFiles(j *Job) Diagnostics {
	d := newDecoder(FileName)
	d.Open(j.Source)
	for _, f := range j.files {
		if f.schema != nil {
			if _, err := f.schema.Compile(j.Dir); err != nil {
				d.FaultAt(f.at, "%v", err)
			}
		} else if data, fault := readInside(j.Dir, f.name); fault != nil {
			d.FaultAt(f.at, "%s %s", yamltree.Quote(f.name), fault.message)
		} else if len(bytes.TrimSpace(data)) == 0 {
			d.WarnAt(f.at, "%s is empty: write what it should say", yamltree.Quote(f.name))
		}
	}
	if j.Format == 2 {
		return d.All() // no hooks
	}

	for i := range j.Steps {
		s := &j.Steps[i]
		d.warnOfHooks(j.Dir, s.StopHooks, place{"steps", i, "stop_hooks"})
		d.warnOfHooks(j.Dir, s.Hooks.AfterAgent, place{"steps", i, "hooks", "after_agent"})
		d.warnOfHooks(j.Dir, s.Hooks.BeforeTool, place{"steps", i, "hooks", "before_tool"})
		d.warnOfHooks(j.Dir, s.Hooks.BeforePrompt, place{"steps", i, "hooks", "before_prompt"})
		for k, in := range s.Inputs {
			from := j.Step(in.FromStep)
			if in.FromStep == "" || from == nil || from.Output(in.File) != nil {
				continue
			}
			names := xslices.Map(from.Outputs, func(o Output) string { return o.Name })
			hint := "it has no outputs; add one, or remove the input"
			if len(names) > 0 {
				hint = nearest(in.File, names, "its outputs are ")
			}
			d.FaultAt(place{"steps", i, "inputs", k, "file"}, "step %s makes no output %s: %s", yamltree.Quote(from.ID),
				yamltree.Quote(in.File), hint)
		}
	}

	return d.All()
}

// warnOfHooks warns of hooks, which nothing runs, and of their missing files.
func (d *decoder) warnOfHooks(dir string, hooks []Hook, at place) {
	for k, h := range hooks {
		at := append(slices.Clip(at), k)
		d.WarnAt(at, "nothing runs this hook: make it a review of the step; 'deepwork jobs convert' does so if it has "+
			"a prompt and runs after the step")
		if file := cmp.Or(h.PromptFile, h.Script); file != "" {
			if _, fault := readInside(dir, file); fault != nil {
				d.WarnAt(at, "%s %s", yamltree.Quote(file), fault.message)
			}
		}
	}
}

// A namedFile is a file that a job names: instructions, or a schema.
type namedFile struct {
	name   string
	schema *ContentSchema // nil for instructions
	at     place          // the position of its name in job.yml
}

// MissingFiles returns an error for each missing instructions or schema file. It costs one stat per file.
func MissingFiles(j *Job) Diagnostics {
	var d *decoder
	for _, f := range j.files {
		if _, err := os.Stat(filepath.Join(j.Dir, filepath.FromSlash(f.name))); !errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if d == nil {
			d = newDecoder(FileName)
			d.Open(j.Source)
		}
		d.FaultAt(f.at, "%s %s", yamltree.Quote(f.name), textFile.fault(fs.ErrNotExist, j.Dir).message)
	}
	if d == nil {
		return nil
	}
	return d.Diagnostics()
}

// texts caches the instructions of a job. A file is read again if its stamp shows that it may have changed.
// It is not cached if it changed so shortly before reading that another change might not show.
type texts struct{ sync.Map } // of cachedText, by instructions_file

type cachedText struct {
	stamp follow.Stamp
	text  string
}

const (
	// maxCached is the maximum size of a cached text, in bytes.
	maxCached = 64 << 10
	// settleBound limits the wait for a file that never settles.
	settleBound = 150 * time.Millisecond
)

// read returns the text of a file in the folder. A cached text costs one stat, of the file to which a symlink
// leads. If the file is being saved, read waits up to bound.
func (t *texts) read(dir, name string, bound time.Duration) (string, *fileFault) {
	for began := time.Now(); ; time.Sleep(follow.Settle) {
		text, fault, patience := t.look(dir, name)
		if time.Since(began) >= min(patience, bound) {
			return text, fault
		}
	}
}

// look is read without waiting. patience is how long to retry if the file seems to be in the middle of a
// save: editors delete and create, write in two parts, or redirect links.
func (t *texts) look(dir, name string) (text string, fault *fileFault, patience time.Duration) {
	cached, _ := t.Load(name)
	known, ok := cached.(cachedText)
	path := follow.Path(filepath.Join(dir, filepath.FromSlash(name)))
	now := path.Stat()
	if ok && now == known.stamp {
		return known.text, nil, 0
	}
	data, fault := readInside(dir, name)
	switch {
	case fault != nil && (changedWithin(follow.SaveBound, now) || changedWithin(follow.SaveBound, nearestFolder(path))),
		fault == nil && len(bytes.TrimSpace(data)) == 0 && changedWithin(follow.SaveBound, now):
		return string(data), fault, follow.SaveBound
	case fault != nil:
		return "", fault, 0
	case now.Kind != follow.Regular || now != path.Stat() || changedWithin(follow.Settle, now):
		return string(data), nil, settleBound
	}

	text = string(data)
	if now.Age(time.Now()) >= follow.Racy && len(text) <= maxCached {
		t.Store(name, cachedText{now, text})
	}
	return text, nil, 0
}

// changedWithin reports whether a file changed within the last d. A time in the future, from another
// machine's clock, does not count.
func changedWithin(d time.Duration, s follow.Stamp) bool {
	age := time.Since(s.Changed())
	return s.Kind != follow.Absent && s.Kind != follow.Failed && age >= 0 && age < d
}

// nearestFolder returns the stamp of the nearest existing folder above a file, which shows when something in
// it was removed.
func nearestFolder(file follow.Path) follow.Stamp {
	for {
		folder := follow.Path(filepath.Dir(string(file)))
		if s := folder.Stat(); s.Kind != follow.Absent || folder == file {
			return s
		}
		file = folder
	}
}
