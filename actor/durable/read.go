package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A BadFileError says why a file at a path is not usable.
type BadFileError struct {
	Path   string
	Reason string // refers to the file as "it"
}

// Error names the file and says what is wrong with it.
func (e *BadFileError) Error() string { return e.Path + " cannot be read: " + e.Reason }

// Read returns the content of a regular file of at most limit bytes, and its FileInfo from before
// it was read. It follows no link, opens no device and does not block on a pipe. Data appended
// meanwhile is left out. It returns a *BadFileError for anything else at path, with the FileInfo if
// it could be opened, or the system's error.
func Read(path string, limit int64) ([]byte, fs.FileInfo, error) {
	// Checked before it is opened, since opening a device can have effects, and after, since
	// another file may have the name by then.
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, &BadFileError{path, "it is " + Kind(fi.Mode()) + ", not a file"}
	}
	f, fi, err := OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if fi.Size() > limit {
		return nil, fi, &BadFileError{path, fmt.Sprintf("it has %d bytes, over the limit of %d", fi.Size(), limit)}
	}
	data := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, data); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fi, &BadFileError{path, "it shrank while it was read"}
	} else if err != nil {
		return nil, nil, err
	}
	return data, fi, nil
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

func regular(f *os.File, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &BadFileError{f.Name(), "it is " + Kind(fi.Mode()) + ", not a file"}
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
