package page

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"deepwork/catalog/jsontext"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// maxOutput is how much of an output a page shows, in bytes.
const maxOutput = 64 << 10

type outputPage struct {
	SessionID, Path string
	Text            string
	Size            int64
	Cut, Binary     bool
}

// output shows a file that a session has delivered, as it is now.
func (s *Site) output(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	p, err := s.readSession(ctx, who, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	path := r.URL.Query().Get("path")
	if p.State == nil || !delivered(p, path) {
		return nil, session.Wrong(codes.UnknownOutput, "Session %s has delivered no file %q.", p.ID, path)
	}
	file, fi, err := openFile(p.State.RootOf(p.Root, r.URL.Query().Get("step")), path)
	if err != nil {
		return nil, session.NotNow(codes.UnreadableOutput, "The file cannot be read now: %v.", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxOutput))
	if err != nil {
		return nil, err
	}
	v := &outputPage{SessionID: p.ID, Path: path, Size: fi.Size(), Cut: fi.Size() > maxOutput}
	for v.Cut && len(data) > 0 && !utf8.Valid(data[len(data)-1:]) { // in the middle of a character
		data = data[:len(data)-1]
	}
	if v.Binary = !utf8.Valid(data) || slices.Contains(data, 0); !v.Binary {
		v.Text = string(data)
	}
	return &shown{view: "output", title: path, data: v, on: []string{store.SessionChanged + ":" + p.ID}}, nil
}

// openFile opens a regular file in a folder by its path as an agent gave it, which may have links in it.
func openFile(root, path string) (*os.File, os.FileInfo, error) {
	folder, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, nil, err
	}
	real, fi, err := gate.Locate(folder, path) // opening a pipe would wait
	if err != nil {
		return nil, nil, err
	}
	if real, err = filepath.Rel(folder, real); err != nil {
		return nil, nil, err
	}
	file, err := os.OpenInRoot(folder, real)
	return file, fi, err
}

// delivered reports whether a session has an output of this path, in a step or in a review.
func delivered(p *sessionPage, path string) bool {
	has := func(outputs machine.Outputs) bool {
		return slices.ContainsFunc(outputs, func(o jsontext.Pair[machine.OutputValue]) bool { return slices.Contains(o.Value.Paths, path) })
	}
	for _, e := range p.State.StepProgress {
		if has(e.Value.Outputs) || e.Value.Question != nil && has(e.Value.Question.Outputs) ||
			slices.ContainsFunc(e.Value.Attempts, func(a *machine.Attempt) bool { return has(a.Outputs) }) {
			return true
		}
	}
	return false
}
