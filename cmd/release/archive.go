package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"slices"
	"time"
)

// A file is an entry of an archive. Its content is data, or that of the file at path.
type file struct {
	name string // with slashes; "folder/" is a folder
	path string
	data []byte
	mode int64 // permissions
	user int   // and group; a zip has neither
}

// content returns the content of the file and its size in bytes.
func (f file) content() (io.ReadCloser, int64, error) {
	if f.path == "" {
		return io.NopCloser(bytes.NewReader(f.data)), int64(len(f.data)), nil
	}
	in, err := os.Open(f.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := in.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, in.Close())
	}
	return in, info.Size(), nil
}

// sorted returns the files in the order of their names.
func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return cmp.Compare(a.name, b.name) })
}

// writeTar writes a tar with the files, which all have one time.
func writeTar(w io.Writer, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range sorted(files) {
		in, size, err := f.content()
		if err != nil {
			return err
		}
		h := &tar.Header{
			Name:    f.name,
			Size:    size,
			Mode:    f.mode,
			Uid:     f.user,
			Gid:     f.user,
			ModTime: at,
			Format:  tar.FormatUSTAR,
		}
		if f.name[len(f.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err = t.WriteHeader(h); err == nil {
			_, err = io.Copy(t, in)
		}
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
	}

	return t.Close()
}

// writeTarGz writes a compressed tar to a new file.
func writeTarGz(path string, files []file, at time.Time) error {
	return create(path, func(w io.Writer) error {
		z := gzip.NewWriter(w) // without a name and a time in its header
		return errors.Join(writeTar(z, files, at), z.Close())
	})
}

// writeZip writes a zip to a new file. Its entries keep their permissions.
func writeZip(path string, files []file, at time.Time) error {
	return create(path, func(w io.Writer) error {
		z := zip.NewWriter(w)
		for _, f := range sorted(files) {
			h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
			h.SetMode(os.FileMode(f.mode))
			out, err := z.CreateHeader(h)
			if err != nil {
				return err
			}

			in, _, err := f.content()
			if err != nil {
				return err
			}
			_, err = io.Copy(out, in)
			if err = errors.Join(err, in.Close()); err != nil {
				return err
			}
		}
		return z.Close()
	})
}

// create writes a new file.
func create(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
