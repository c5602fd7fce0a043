package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
)

// The errors of Locate, in addition to the system's.
var (
	ErrOutside    = errors.New("it leads outside the project root")
	ErrNotRegular = errors.New("it is not a regular file")
)

// Locate returns the path of a submitted file with its symlinks resolved; root must already be resolved. With
// ErrNotRegular it also returns what the path leads to.
func Locate(root, path string) (real string, info fs.FileInfo, err error) {
	if path == "" {
		return "", nil, fs.ErrNotExist
	}

	full := fullPath(root, path)
	if info := direct(root, full); info != nil {
		return full, info, nil
	}
	if real, err = filepath.EvalSymlinks(full); err != nil {
		return "", nil, err
	}
	if rel, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(rel) {
		return "", nil, ErrOutside
	}
	if info, err = os.Stat(real); err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	return real, info, err
}

// FilesIn returns the regular files in a submitted folder and the folders below it, sorted, by their paths
// below the submitted one. real is the folder with symlinks resolved. Links inside are left out. More files
// than most are an error.
func FilesIn(real, path string, most int) (files []string, err error) {
	err = filepath.WalkDir(real, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}

		if len(files) == most {
			return fmt.Errorf("it has more than %d files", most)
		}

		rel, err := filepath.Rel(real, name)
		files = append(files, filepath.ToSlash(filepath.Join(path, rel)))
		return err
	})
	slices.Sort(files)
	return files, err
}

// direct returns the regular file at a path below root, or nil if a link or anything else is on the way. It
// saves most calls from examining each folder above root.
func direct(root, full string) (info fs.FileInfo) {
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

// HashFiles returns the hex SHA-256 of each file, by its path as given: relative to root, or
// absolute. Each is read once, in pieces, until ctx ends. An error names the file; a file must be
// regular and inside root after symlinks are resolved.
func HashFiles(ctx context.Context, root string, paths []string) (map[string]string, error) {
	hashes := make(map[string]string, len(paths))
	if len(paths) == 0 {
		return hashes, nil
	}

	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("resolving the project root: %w", err)
	}

	buf := make([]byte, 256<<10)
	for _, p := range paths {
		if _, ok := hashes[p]; ok {
			continue
		}
		if hashes[p], err = hashFile(ctx, root, p, buf); err != nil {
			return nil, fmt.Errorf("hashing output file '%s': %w", p, err)
		}
	}
	return hashes, nil
}

// maxHashed is the maximum size in bytes of an output under review: reading it takes seconds, and a prepared
// sparse file may claim any size.
const maxHashed = 4 << 30

// hashFile hashes one file, unless ctx ends first; root must be resolved.
func hashFile(ctx context.Context, root, path string, buf []byte) (string, error) {
	f, err := openFile(root, path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.copyTo(ctx, io.Discard, buf)
}

// An openedFile is a regular file inside the project.
type openedFile struct {
	*os.File
	size int64
	own  bool // its resolved path is under .deepwork
}

// copyTo writes the file to w, unless ctx ends first, and returns the hash of what it wrote.
func (f *openedFile) copyTo(ctx context.Context, w io.Writer, buf []byte) (string, error) {
	if f.size > maxHashed {
		return "",
			fmt.Errorf("it has %d bytes, and a review can be about %d at most: split it, or hand in a smaller file "+
				"that describes it", f.size, int64(maxHashed))
	}
	defer context.AfterFunc(ctx, func() { f.Close() })() // ends the copy

	h := sha256.New()
	if _, err := io.CopyBuffer(io.MultiWriter(w, h), io.LimitReader(f, maxHashed), buf); err != nil {
		return "", cmp.Or(ctx.Err(), err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// openFile opens a submitted file for reading; root must be resolved.
func openFile(root, path string) (*openedFile, error) {
	// Check before the file is opened, since opening a device can have effects. OpenRegular checks again,
	// since another file may have the name by then.
	real, _, err := Locate(root, path)
	if err != nil {
		return nil, plain(err)
	}
	f, info, err := durable.OpenRegular(real, os.O_RDONLY)
	if _, irregular := errors.AsType[*durable.BadFileError](err); irregular {
		return nil, ErrNotRegular
	}
	if err != nil {
		return nil, plain(err)
	}
	return &openedFile{File: f, size: info.Size(), own: isOwnPath(root, real)}, nil
}

// ReadFile reads a submitted file of at most most bytes.
func ReadFile(root, path string, most int64) ([]byte, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	f, err := openFile(root, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, fmt.Errorf("it has more than %d bytes: divide it", most)
	}
	return data, err
}

// fullPath returns the absolute path of a submitted file.
func fullPath(root, path string) string {
	if path = filepath.FromSlash(path); filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(root, path)
}

// isOwnPath reports whether a path is in the server's own folder of the project. Some file systems
// ignore case.
func isOwnPath(root, path string) bool {
	rel, err := filepath.Rel(root, fullPath(root, path))
	first, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
	return err == nil && strings.EqualFold(first, ".deepwork")
}

// plain returns err without its path, which the message already contains.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
