package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Why a file is not usable, in addition to the system's errors.
var (
	ErrOutside    = errors.New("it leads outside the project root")
	ErrNotRegular = errors.New("it is not a regular file")
	ErrTooLarge   = errors.New("it is too large")
)

// A BadFileError says why a file at a path is not usable. It wraps one of the errors above, if there is one.
type BadFileError struct {
	Path   string
	Reason string // the rest of a sentence about the file: "is a folder"
	Err    error
}

// Error names the file and says what is wrong with it.
func (e *BadFileError) Error() string { return e.Path + " cannot be read: it " + e.Reason }
func (e *BadFileError) Unwrap() error { return e.Err }

func notRegular(path string, fi fs.FileInfo) error {
	return &BadFileError{path, "is " + Kind(fi.Mode()) + ", not a file", ErrNotRegular}
}

// Locate returns the path of a file in a folder, as others gave it, with its symlinks resolved; the folder must be
// resolved. With ErrNotRegular it returns what the path names, with ErrOutside where it leads.
func Locate(folder, path string) (real string, info fs.FileInfo, err error) {
	if path == "" {
		return "", nil, fs.ErrNotExist
	}

	full := absolute(folder, path)
	if info := direct(folder, full); info != nil {
		return full, info, nil
	}
	if real, err = filepath.EvalSymlinks(full); err != nil {
		return "", nil, err
	}
	if rel, err := filepath.Rel(folder, real); err != nil || !filepath.IsLocal(rel) {
		return real, nil, ErrOutside
	}
	info, err = os.Stat(real)
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	return real, info, err
}

func absolute(folder, path string) string {
	if path = filepath.FromSlash(path); filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// direct returns the regular file at a path below root, or nil if there is a link or anything else on the way. It
// saves most calls the look at each folder above root, which may be a link. On Windows, where a file has other names,
// such as GIT~1 for .git, it returns nil: EvalSymlinks returns the name on the disk.
func direct(root, full string) (info fs.FileInfo) {
	if runtime.GOOS == "windows" {
		return nil
	}

	rel, err := filepath.Rel(root, full)
	if err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		if info != nil && !info.IsDir() {
			return nil
		}
		root = filepath.Join(root, name)
		if info, err = os.Lstat(root); err != nil {
			return nil
		}
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	return info
}

// OpenIn opens a file in a folder that others may have prepared, for reading: a regular file, to which links may lead
// if they stay in the folder, also when one is replaced meanwhile. A relative path begins at the folder. It opens no
// device and does not wait for a pipe. Its errors are a *BadFileError or the system's.
func OpenIn(folder, path string) (*os.File, fs.FileInfo, error) {
	// Checked before it is opened, since opening a device can have effects.
	real := absolute(folder, path)
	if direct(folder, real) == nil {
		var err error
		if folder, real, err = resolve(folder, path); err != nil {
			return nil, nil, err
		}
	}

	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	name, err := filepath.Rel(folder, real)
	if err != nil {
		return nil, nil, err
	}
	return OpenRegularIn(root, name, os.O_RDONLY)
}

// resolve returns a folder and a regular file in it with their symlinks resolved.
func resolve(folder, path string) (inside, real string, err error) {
	if inside, err = filepath.EvalSymlinks(folder); err != nil {
		return "", "", err
	}

	real, fi, err := Locate(inside, path)
	switch {
	case errors.Is(err, ErrOutside):
		err = &BadFileError{path, fmt.Sprintf("leads out of %s, to %s", inside, real), err}
	case errors.Is(err, ErrNotRegular):
		err = notRegular(path, fi)
	}
	return inside, real, err
}

// ReadIn returns the content of a file of at most limit bytes that OpenIn opens.
func ReadIn(folder, path string, limit int64) ([]byte, error) {
	f, fi, err := OpenIn(folder, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, fi, path, limit)
}

// Read returns the content of a regular file of at most limit bytes, and its FileInfo from before
// it was read. It follows no link, opens no device and does not block on a pipe. Data appended
// meanwhile is left out. It returns a *BadFileError for anything else at path, with the FileInfo if
// it could be opened, or the system's error.
func Read(path string, limit int64) ([]byte, fs.FileInfo, error) {
	// Checked before it is opened, and after, since another file may have the name by then.
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, notRegular(path, fi)
	}
	return read(path, limit, openNoFollow)
}

func read(path string, limit int64, flag int) ([]byte, fs.FileInfo, error) {
	f, fi, err := regular(os.OpenFile(path, os.O_RDONLY|flag, 0))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := readAll(f, fi, path, limit)
	return data, fi, err
}

// ReadLinked is Read for a file to which links may lead from anywhere: one of the user's own, or one whose content
// is not shown to others.
func ReadLinked(path string, limit int64) ([]byte, fs.FileInfo, error) {
	fi, err := os.Stat(path) // opening a device can have effects
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, notRegular(path, fi)
	}
	return read(path, limit, openNonBlock)
}

func readAll(f *os.File, fi fs.FileInfo, path string, limit int64) ([]byte, error) {
	if fi.Size() > limit {
		reason := fmt.Sprintf("has %d bytes, over the limit of %d", fi.Size(), limit)
		return nil, &BadFileError{path, reason, ErrTooLarge}
	}
	data := make([]byte, fi.Size())
	_, err := io.ReadFull(f, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = &BadFileError{path, "shrank while it was read", nil}
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// OpenRegular opens an existing regular file with os.O_RDONLY, os.O_WRONLY or os.O_RDWR, and
// returns its FileInfo. A link that has replaced it, or a pipe, is an error.
func OpenRegular(path string, flag int) (*os.File, fs.FileInfo, error) {
	return regular(os.OpenFile(path, flag|openNoFollow, 0))
}

// OpenRegularIn is OpenRegular for a file in an opened folder.
func OpenRegularIn(dir *os.Root, name string, flag int) (*os.File, fs.FileInfo, error) {
	return regular(dir.OpenFile(name, flag|openNoFollow, 0))
}

// OpenFolderIn opens a folder in an opened one. It does not wait for a pipe in its place.
func OpenFolderIn(dir *os.Root, name string) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|openNonBlock, 0)
	if err != nil {
		return nil, err
	}

	fi, err := f.Stat()
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is %s, not a folder", f.Name(), Kind(fi.Mode()))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// FolderFS lists an opened folder and those in it, and opens nothing else.
type FolderFS struct{ *os.Root }

// Open is OpenFolderIn.
func (f FolderFS) Open(name string) (fs.File, error) {
	folder, err := OpenFolderIn(f.Root, name)
	if err != nil {
		return nil, err
	}
	return folder, nil
}

func regular(f *os.File, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}

	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = notRegular(f.Name(), fi)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// Kind returns the name of a file type for people: "a folder", "a named pipe".
func Kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a file"
	case m.IsDir():
		return "a folder"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}

	return "something special"
}

// Inside returns an error if a link leads from a path below a folder out of the folder, or to
// something missing. The path itself may be missing.
func Inside(folder, path string) error {
	rel, err := filepath.Rel(folder, path)
	if err != nil {
		return err
	}

	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return err
	}

	at := folder
	for part := range strings.SplitSeq(rel, string(filepath.Separator)) {
		at = filepath.Join(at, part)
		fi, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}

		if fi.Mode()&(fs.ModeSymlink|fs.ModeIrregular) == 0 {
			continue
		}

		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			real, err = filepath.Rel(root, real)
		}
		if err != nil || !filepath.IsLocal(real) {
			return fmt.Errorf("%s is a link that leads out of %s, or nowhere: remove it, or put what it leads to there",
				at, folder)
		}
	}

	return nil
}
