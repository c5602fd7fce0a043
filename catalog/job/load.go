package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/internal/follow"
	"deepwork/catalog/internal/yamltree"
)

// MaxInstructionsBytes is the maximum size of an instructions file: 1 MiB.
const MaxInstructionsBytes = 1 << 20

// Load reads and parses dir/job.yml. A file that is missing, unreadable, not a regular file or
// larger than MaxBytes also gives a Diagnostic. The file may be a symlink to anywhere. A pipe or
// device at its path is refused without waiting for it; reading a regular file may block as long as
// the disk does.
func Load(dir string) (*Job, Diagnostics) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, Diagnostics{{File: FileName, Message: fmt.Sprintf("the folder %s cannot be resolved: %v", yamltree.Quote(dir), err)}}
	}
	source, fault := jobFile.read(os.Stat, os.OpenFile, filepath.Join(abs, FileName), abs)
	if fault != nil {
		return nil, Diagnostics{{File: FileName, Message: fault.message}}
	}
	return Parse(abs, FileName, source)
}

// A fileFault is the reason why a file of a job is unusable, as the end of a sentence that begins
// with its name.
type fileFault struct {
	message string
	err     error // the system's, or nil
}

// A fileRule says what a file must be, and the remedy if it is not.
type fileRule struct {
	limit               int64
	missing, large, put string
}

var (
	jobFile = fileRule{MaxBytes, "write it, or remove the folder",
		"move long texts to instructions files, or make two jobs of it", "a file"}
	textFile = fileRule{MaxInstructionsBytes, "write the file, or correct the path in " + FileName,
		"shorten it, or let it refer to other files", "a text file"}
)

// read reads a regular file. dir is the job's folder, for messages.
func (rule fileRule) read(
	stat func(string) (fs.FileInfo, error),
	open func(string, int, fs.FileMode) (*os.File, error),
	name, dir string,
) ([]byte, *fileFault) {
	// Opening a device can have effects, so the file is checked before, and again after, since it
	// may have been replaced.
	info, err := stat(name)
	if err != nil {
		return nil, rule.systemFault(err, dir)
	}
	if fault := rule.check(info); fault != nil {
		return nil, fault
	}
	f, err := open(name, os.O_RDONLY|follow.NonBlocking, 0)
	if err != nil {
		return nil, rule.systemFault(err, dir)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, rule.systemFault(err, dir)
	}
	if fault := rule.check(info); fault != nil {
		return nil, fault
	}
	// One byte more than the limit shows that the file has grown.
	data, err := io.ReadAll(io.LimitReader(f, rule.limit+1))
	if err != nil {
		return nil, rule.systemFault(err, dir)
	}
	if int64(len(data)) > rule.limit {
		return nil, rule.tooLarge()
	}
	return data, nil
}

func (rule fileRule) check(info fs.FileInfo) *fileFault {
	if !info.Mode().IsRegular() {
		return &fileFault{message: fmt.Sprintf("is %s, not a regular file: put %s in its place", durable.Kind(info.Mode().Type()), rule.put)}
	}
	if info.Size() > rule.limit {
		return rule.tooLarge()
	}
	return nil
}

func (rule fileRule) tooLarge() *fileFault {
	return &fileFault{message: fmt.Sprintf("is larger than %d bytes (1 MiB): %s", rule.limit, rule.large)}
}

func (rule fileRule) systemFault(err error, dir string) *fileFault {
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
	data, fault := readResolved(dir, filepath.FromSlash(name))
	if fault != nil {
		return nil, fault
	}
	data = bytes.TrimPrefix(data, yamltree.BOM)
	if at, found := yamltree.NotUTF8(data); found {
		return nil, &fileFault{message: fmt.Sprintf("is not UTF-8 text (line %d): save the file as UTF-8", yamltree.PositionAt(data, at).Line)}
	}
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return nil, &fileFault{message: fmt.Sprintf("is not a text file, it has a NUL byte in line %d: put a text in its place", yamltree.PositionAt(data, at).Line)}
	}
	return data, nil
}

// readResolved resolves symlinks first, since os.Root refuses absolute ones even if they point
// inside, and then opens the result through os.Root, so that a link replaced in between does not
// lead outside either.
func readResolved(dir, local string) ([]byte, *fileFault) {
	if !filepath.IsLocal(local) {
		return nil, &fileFault{message: "is not a path inside of the job's folder: write one relative to it, such as steps/draft.md"}
	}
	folder, err := filepath.EvalSymlinks(dir)
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(folder)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fileFault{fmt.Sprintf("cannot be read, since its job's folder %s is gone: put it back", dir), err}
	} else if err != nil {
		return nil, textFile.systemFault(err, dir)
	}
	defer root.Close()
	resolved, err := filepath.EvalSymlinks(filepath.Join(folder, local))
	if err != nil {
		return nil, textFile.systemFault(err, dir)
	}
	inside, err := filepath.Rel(folder, resolved)
	if err != nil || inside == ".." || strings.HasPrefix(inside, ".."+string(filepath.Separator)) {
		return nil, &fileFault{message: fmt.Sprintf("leads out of the job's folder %s, to %s: copy the file into the folder", dir, resolved)}
	}
	return textFile.read(root.Stat, root.OpenFile, inside, dir)
}

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
