package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// List yields the records there are, in no order, without reading them. It
// costs a stat each. A record that vanishes meanwhile is left
// out. An error ends it. A folder that does not exist has none.
func (s *Store) List(ctx context.Context) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for entry, err := range s.names(ctx) {
			if err != nil {
				yield(store.Info{}, fmt.Errorf("listing the sessions: %w", err))
				return
			}
			id, ok := recordID(entry.Name())
			if !ok {
				continue
			}
			fi, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				yield(store.Info{}, fmt.Errorf("listing the sessions: %w", err))
				return
			}
			if !yield(store.Info{ID: id, ModTime: fi.ModTime(), Size: fi.Size()}, nil) {
				return
			}
		}
	}
}

// recordID takes the id from a record's file name.
func recordID(name string) (string, bool) { return between(name, "session_", ".json", 8) }

// between returns what stands between the two, if it is n hexadecimal characters.
func between(name, before, after string, n int) (string, bool) {
	rest, is := strings.CutPrefix(name, before)
	id, ends := strings.CutSuffix(rest, after)
	return id, is && ends && isHex(id, n)
}

// paths returns the files whose names are wanted, by absolute path and sorted.
func (s *Store) paths(ctx context.Context, wanted func(name string) bool) (out []string, err error) {
	for entry, err := range s.names(ctx) {
		if err != nil {
			return nil, err
		}
		if wanted(entry.Name()) {
			out = append(out, filepath.Join(s.dir, entry.Name()))
		}
	}
	slices.Sort(out)
	return out, nil
}

// names yields the entries of the folder in the system's order, a few at a
// time, so that a folder of 100,000 costs no memory to speak of.
func (s *Store) names(ctx context.Context) iter.Seq2[fs.DirEntry, error] {
	return func(yield func(fs.DirEntry, error) bool) {
		f, err := os.Open(s.dir)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(nil, durable.Explain(err, s.dir))
			return
		}
		defer f.Close()
		for {
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			// At the end of the folder the error is io.EOF and the list empty.
			entries, err := f.ReadDir(512)
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if len(entries) == 0 {
				if err != nil && !errors.Is(err, io.EOF) {
					yield(nil, durable.Explain(err, s.dir))
				}
				return
			}
		}
	}
}
