package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// inlineLimit is the size of the largest file that is inlined, in bytes.
const inlineLimit = 4 << 20

// errChanged reports a file that has changed since it was submitted.
type errChanged struct {
	path string
	err  error // why it is unreadable, or nil
}

func (e *errChanged) Error() string {
	if e.err != nil {
		return fmt.Sprintf("output file '%s' cannot be read any more: %v", e.path, e.err)
	}
	return fmt.Sprintf("output file '%s' has another content than when it was submitted", e.path)
}

func (e *errChanged) Unwrap() error { return e.err }

// A span is the position of an inlined file in a prompt.
type span struct{ begin, end int }

// outputs writes the files: their content, or only their paths if there are too many.
func (b *builder) outputs(ctx context.Context) error {
	files := b.task.Files
	if len(files) == 0 {
		b.write("(no file was submitted)\n")
		return nil
	}
	b.spans = make(map[int]span)
	paths := 0
	for _, f := range files {
		if f.Text == nil {
			paths++
		}
	}
	shown := paths <= b.inline
	if shown {
		b.makeRoom(files)
	} else {
		b.write(fmt.Sprintf("%d files, not shown here. Read each of them.\n", paths))
	}
	for i, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.file(i, f, shown); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom makes the prompt large enough for all files at once: growing it file by
// file takes several times as long as reading them.
func (b *builder) makeRoom(files []File) {
	room := 4 << 10
	for _, f := range files {
		room += 1 << 10
		if info, err := os.Stat(fullPath(b.root, f.Path)); err == nil && info.Mode().IsRegular() && info.Size() <= inlineLimit {
			room += int(info.Size())
		}
	}
	b.stdin = slices.Grow(b.stdin, room+len(b.sub.Notes))
}

// file writes one file.
func (b *builder) file(i int, f File, shown bool) error {
	if f.Text != nil {
		b.write(b.marker("FILE", "output `"+f.Output+"`, a text"), "\n")
		begin := len(b.stdin)
		b.write(*f.Text)
		b.spans[i] = span{begin, len(b.stdin)}
		if !strings.HasSuffix(*f.Text, "\n") {
			b.write("\n")
		}
		return nil
	}
	o, err := openFile(b.root, f.Path)
	if err != nil {
		if f.SHA256 != "" {
			return &errChanged{f.Path, err}
		}
		why := "it is missing"
		if !errors.Is(err, fs.ErrNotExist) {
			why = "it cannot be read: " + err.Error()
		}
		b.name(f, shown, "("+why+")")
		return nil
	}
	defer o.Close()
	size := fmt.Sprintf("%d bytes", o.size)
	switch {
	case !shown:
		b.name(f, shown, size)
	case o.own || isOwnPath(b.root, f.Path):
		b.name(f, shown, "(not shown, as it is under .deepwork: read it; "+size+")")
	case o.size > inlineLimit:
		b.name(f, shown, "(too large to be shown: read it; "+size+")")
	default:
		return b.show(i, f, o)
	}
	return nil
}

// check returns an error if a file is not the one that was submitted. For an inlined file it hashes
// the bytes in the prompt, otherwise the file itself.
func (b *builder) check(ctx context.Context) error {
	var named []File
	for i, f := range b.task.Files {
		at, shown := b.spans[i]
		if !shown {
			named = append(named, f)
			continue
		}
		if sum := sha256.Sum256(b.stdin[at.begin:at.end]); hex.EncodeToString(sum[:]) != f.SHA256 {
			return &errChanged{path: f.Path}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return unchanged(ctx, b.root, named)
}

// name writes the path of a file that is not inlined, and the reason.
func (b *builder) name(f File, shown bool, text string) {
	if !shown {
		b.write("- output `", f.Output, "`: ", code(f.Path), ", ", text, "\n")
		return
	}
	b.write(b.marker("FILE", "output `"+f.Output+"`:", code(f.Path)), "\n", text, "\n")
}

// show reads a file into the prompt, and removes it again if it is not text.
func (b *builder) show(i int, f File, o *openedFile) error {
	before := len(b.stdin)
	b.write(b.marker("FILE", "output `"+f.Output+"`:", code(f.Path)), "\n")
	begin := len(b.stdin)
	for len(b.stdin)-begin <= inlineLimit {
		if len(b.stdin) == cap(b.stdin) {
			b.stdin = slices.Grow(b.stdin, 64<<10)
		}
		n, err := o.Read(b.stdin[len(b.stdin):cap(b.stdin)])
		b.stdin = b.stdin[:len(b.stdin)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return &errChanged{f.Path, plain(err)}
		}
	}
	content := b.stdin[begin:]
	switch {
	case bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content):
		b.stdin = b.stdin[:before]
		b.name(f, true, fmt.Sprintf("(binary, not shown; %d bytes)", len(content)))
		return nil
	case len(content) == 0:
		b.write("(the file is empty)\n")
	case content[len(content)-1] != '\n':
		b.write("\n")
	}
	b.spans[i] = span{begin, begin + len(content)}
	return nil
}

// unchanged returns an error if a file no longer has the content that was judged.
func unchanged(ctx context.Context, root string, files []File) error {
	buf := make([]byte, 256<<10)
	for _, f := range files {
		if f.Text != nil {
			continue
		}
		sum, err := hashFile(ctx, root, f.Path, buf)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && f.SHA256 == "": // it did not exist before
		case err != nil:
			return &errChanged{f.Path, err}
		case sum != f.SHA256:
			return &errChanged{path: f.Path}
		}
	}
	return nil
}
