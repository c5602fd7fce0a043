package page

import (
	"context"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"deepwork/session"
)

// A helpPage is a page of the documentation.
type helpPage struct {
	Index bool
	Text  template.HTML
}

// help shows a page of the documentation. Links of one to another are relative, and so lead to the other's URL here.
func (s *Site) help(_ context.Context, _ session.Caller, r *http.Request) (*shown, error) {
	file := path.Join(r.PathValue("folder"), r.PathValue("file"))
	text, err := fs.ReadFile(s.Help, file)
	if err != nil { // embedded files can be read
		return nil, &refusal{http.StatusNotFound, "The documentation has no page " + file + "."}
	}
	title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
	return &shown{view: "help", title: title, data: helpPage{file == "README.md", markdown(text)}}, nil
}
