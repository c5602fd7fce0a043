package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// List yields the records, unordered, without reading them. It costs a stat for each. A record that
// vanishes meanwhile is left out. An error ends it.
func (s *Store) List(ctx context.Context) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		entries, err := names(ctx, s.dir)
		for i := 0; i < len(entries) && err == nil; i++ {
			id, ok := recordID(entries[i].Name())
			if !ok {
				continue
			}
			fi, gone := entries[i].Info()
			if errors.Is(gone, fs.ErrNotExist) {
				continue
			}
			if err = cmp.Or(gone, context.Cause(ctx)); err == nil && !yield(store.Info{ID: id, ModTime: fi.ModTime(), Size: fi.Size()}, nil) {
				return
			}
		}
		if err != nil {
			yield(store.Info{}, fmt.Errorf("listing the sessions: %w", err))
		}
	}
}

// recordID returns the id in a record's file name.
func recordID(name string) (string, bool) { return between(name, "session_", ".json", 8) }

// between returns the text between the two, if it is n hexadecimal characters.
func between(name, before, after string, n int) (string, bool) {
	rest, is := strings.CutPrefix(name, before)
	id, ends := strings.CutSuffix(rest, after)
	return id, is && ends && isHex(id, n)
}

// paths returns the files of both folders whose names are wanted, by absolute path and
// sorted.
func (s *Store) paths(ctx context.Context, wanted func(name string) bool) (out []string, err error) {
	for _, dir := range []string{s.dir, s.state.Definitions()} {
		entries, err := names(ctx, dir)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if wanted(entry.Name()) {
				out = append(out, filepath.Join(dir, entry.Name()))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// names returns the entries of a folder, sorted; none if it is missing.
func names(ctx context.Context, dir string) ([]fs.DirEntry, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, durable.Explain(err, dir)
}
