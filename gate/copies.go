package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"time"

	"deepwork/actor/durable"
)

// A given is a file that a reviewer is given, or the copy of one: nobody may write to it until the review ends.
type given struct {
	File
	changed time.Time // see durable.ChangedAt
}

// give notes a file before it is read.
func (b *builder) give(f File) {
	b.given = append(b.given, given{f, durable.ChangedAt(fullPath(b.root, f.Path))})
}

// copiesOf returns the folder of the copies that a reviewer is given, below the project root: many agents can read
// only what is there.
func copiesOf(sessionID, nonce string) string {
	return ".deepwork/tmp/quality_review_" + sessionID + "_" + nonce + "/files"
}

// copy copies a file that the reviewer reads itself, and names both in the prompt. The copy has what was submitted,
// whatever takes the place of the original meanwhile, or of a folder or a link on the way to it. why says why the file
// is not shown, unless none is.
func (b *builder) copy(ctx context.Context, f File, o *openedFile, why string) error {
	rel, err := filepath.Rel(b.root, o.Name())
	if err != nil {
		return err
	}

	c := File{Path: path.Join(b.copies, filepath.ToSlash(rel)), SHA256: f.SHA256}
	if !slices.ContainsFunc(b.given, func(g given) bool { return g.Path == c.Path }) {
		sum, err := b.writeCopy(ctx, c.Path, o)
		switch {
		case err != nil:
			return fmt.Errorf("output file '%s' cannot be copied for the reviewer to %s: %w", f.Path, b.copies, err)
		case sum != f.SHA256:
			return &errChanged{path: f.Path}
		}
		b.give(c)
	}

	text := fmt.Sprintf("%d bytes, copied to %s", o.size, code(c.Path))
	if why != "" {
		text = "(" + why + ": " + text + ")"
	}
	b.name(f, why != "", text)
	return nil
}

// writeCopy writes a copy, which git ignores, and returns its hash.
func (b *builder) writeCopy(ctx context.Context, name string, o *openedFile) (sum string, err error) {
	err = b.dir.MkdirAll(path.Dir(name), 0o700)
	if err == nil {
		err = b.dir.WriteFile(path.Join(path.Dir(b.copies), ".gitignore"), []byte("*\n"), 0o600)
	}
	if err != nil {
		return "", err
	}

	w, err := b.dir.Create(name)
	if err != nil {
		return "", err
	}
	if _, err = o.Seek(0, io.SeekStart); err == nil {
		sum, err = o.copyTo(ctx, w, make([]byte, 256<<10))
	}
	return sum, errors.Join(err, w.Close())
}

// unchanged returns an error if something that the reviewer was given no longer has the content that was judged, or
// may have had another meanwhile.
func (b *builder) unchanged(ctx context.Context) error {
	buf := make([]byte, 256<<10)
	for _, g := range b.given {
		sum, err := hashFile(ctx, b.root, g.Path, buf)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && g.SHA256 == "": // it did not exist before
		case err != nil:
			return &errChanged{g.Path, err}
		case sum != g.SHA256:
			return &errChanged{path: g.Path}
		case !durable.ChangedAt(fullPath(b.root, g.Path)).Equal(g.changed):
			return fmt.Errorf("output file '%s' was written or replaced, and has its old content again", g.Path)
		}
	}

	return nil
}
