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

// Private reports whether a path without symlinks below root is git's own, or in a folder of exports, which may be of
// other callers. root may be in one.
func Private(root, real string) bool {
	rel, err := filepath.Rel(root, real)
	rel = "/" + strings.ToLower(filepath.ToSlash(rel)) + "/" // some file systems ignore case
	if err != nil || strings.Contains(rel, "/.git/") || strings.Contains(rel, "/.deepwork/tmp/") {
		return true
	}

	for _, own := range []string{".git", ".deepwork/tmp"} { // which may be links to folders of the project
		at, err := filepath.EvalSymlinks(filepath.Join(root, own))
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(at, real); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// FilesIn returns the regular files in a submitted folder and in those below it, sorted, by their paths below the
// submitted one; real is the folder with symlinks resolved. Links in it are left out, as what is Private. More files
// than most are an error.
func FilesIn(root, real, path string, most int) (files []string, err error) {
	err = filepath.WalkDir(real, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && Private(root, name) {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() || strings.EqualFold(d.Name(), ".git") {
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
	f, info, err := durable.OpenIn(root, path)
	if err != nil {
		return nil, plain(err)
	}
	return &openedFile{File: f, size: info.Size(), own: isOwnPath(root, f.Name())}, nil
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
	if e, ok := errors.AsType[*durable.BadFileError](err); ok && e.Err != nil {
		return e.Err
	}
	return err
}
