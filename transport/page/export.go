package page

import (
	"context"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"deepwork/actor/durable"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/session/run"
	"deepwork/session/show"
)

// An exported is what the file of a run shows.
type exported struct {
	*runView
	Style  []template.CSS
	At     time.Time
	Diffs  []fileDiff
	Stat   *diffstat
	Notice string // about the diff
	Files  bool   // the content of outputs is shown
}

// maxExported is how many bytes of an output are exported.
const maxExported = 256 << 10

// Export writes a run as one HTML file that runs nothing and loads nothing: its goal, its steps with their verdicts and
// evidence, and its diff. The content of outputs is in it only if files is set.
func Export(
	ctx context.Context, w io.Writer, e *attempt.Engine, who session.Caller, v *run.View, files bool,
) error {
	diff, err := merge.Diff(ctx, e, who,
		merge.DiffArgs{Target: board.Target{AttemptID: &v.RunID}, MaxBytes: new(merge.MaxDiff)})
	if err != nil {
		return fmt.Errorf("reading the changes: %w", err)
	}
	x := &exported{runView: &runView{View: v}, At: time.Now(), Files: files, Notice: board.OrEmpty(diff.Notice)}
	for _, d := range diff.Diffs {
		x.Diffs = append(x.Diffs, parseDiff(d)...)
	}
	for i := range x.Diffs {
		x.Diffs[i].color()
	}
	x.Stat = statOf(x.Diffs, diff.Truncated)

	for _, name := range []string{"static/style.css", "static/work.css"} {
		style, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		x.Style = append(x.Style, template.CSS(style))
	}
	t, err := exportView()
	if err != nil {
		return err
	}
	return t.Execute(w, x)
}

func exportView() (*template.Template, error) {
	return template.New("run.html").Funcs(functions).ParseFS(embedded, "templates/export/run.html",
		"templates/parts.html", "templates/parts/*.html")
}

// Content returns the content of an output of a step, or why it cannot be shown.
func (x *exported) Content(s *run.Step, path string) string {
	data, err := durable.ReadIn(s.Session.RootOf(x.Workspace, s.ID), path, merge.MaxDiff)
	switch {
	case err != nil:
		return "It cannot be read: " + err.Error()
	case !utf8.Valid(data) || slices.Contains(data, 0):
		return fmt.Sprintf("It is binary: %d bytes.", len(data))
	}
	return show.Exact(jsontext.Clip(string(data), maxExported))
}
