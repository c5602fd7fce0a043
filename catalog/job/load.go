package job

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
	"deepwork/catalog/internal/follow"
	"deepwork/catalog/internal/yamltree"
)

// Load reads and parses dir/job.yml. A file that is missing, unreadable, not a
// regular file or larger than MaxBytes is a Diagnostic too. The file may be a
// symlink to wherever. A pipe or device in its place is refused without being
// waited for; reading a regular file may block as long as the disk does.
func Load(dir string) (*Job, Diagnostics) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, Diagnostics{{File: FileName, Message: fmt.Sprintf("the folder %s cannot be resolved: %v", yamltree.Quote(dir), err)}}
	}
	source, fault := readRegular(os.Stat, os.OpenFile, filepath.Join(abs, FileName), MaxBytes)
	if fault != nil {
		return nil, Diagnostics{{File: FileName, Message: loadMessage(abs, fault)}}
	}
	return Parse(abs, FileName, source)
}

func loadMessage(dir string, fault *fileFault) string {
	switch {
	case errors.Is(fault.err, fs.ErrNotExist):
		return fmt.Sprintf("does not exist in %s: write it, or remove the folder", dir)
	case errors.Is(fault.err, fs.ErrPermission):
		return "cannot be read, permission is denied: make it readable for the user that runs deepwork"
	case fault.tooLarge:
		return fmt.Sprintf("is larger than %d bytes (1 MiB): move long texts to instructions files, or make two jobs of it", MaxBytes)
	case fault.mode != 0:
		return fmt.Sprintf("is %s, not a regular file: put a file in its place", durable.Kind(fault.mode))
	}
	return fmt.Sprintf("cannot be read: %v", fault.err)
}

// A fileFault is why a file was not read.
type fileFault struct {
	err      error       // what the system said, or nil
	mode     fs.FileMode // its type, where it is no regular file
	tooLarge bool
}

// readRegular reads a regular file of at most limit bytes. It looks before it
// opens, since opening a device can have effects, and looks again after, since
// what stands there may have been replaced.
func readRegular(
	stat func(string) (fs.FileInfo, error),
	open func(string, int, fs.FileMode) (*os.File, error),
	name string, limit int,
) ([]byte, *fileFault) {
	info, err := stat(name)
	if err != nil {
		return nil, &fileFault{err: err}
	}
	if fault := unfit(info, limit); fault != nil {
		return nil, fault
	}
	f, err := open(name, os.O_RDONLY|follow.NonBlocking, 0)
	if err != nil {
		return nil, &fileFault{err: err}
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, &fileFault{err: err}
	}
	if fault := unfit(info, limit); fault != nil {
		return nil, fault
	}
	// One byte more than the size lets the file end in one read; one more than
	// the limit tells a file that grew past it meanwhile.
	data := make([]byte, 0, info.Size()+1)
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if len(data) > limit {
			return nil, &fileFault{tooLarge: true}
		}
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, &fileFault{err: err}
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

func unfit(info fs.FileInfo, limit int) *fileFault {
	if !info.Mode().IsRegular() {
		return &fileFault{mode: info.Mode().Type()}
	}
	if info.Size() > int64(limit) {
		return &fileFault{tooLarge: true}
	}
	return nil
}
