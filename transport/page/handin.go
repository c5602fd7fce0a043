package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/show"
	"deepwork/session/workflow"
)

// A handedFile is a file as a page shows it to a person. Everything in it is safe: what an agent wrote is escaped, or
// rendered to markup that runs nothing and loads nothing from elsewhere.
type handedFile struct {
	workflow.HandedFile
	Image    string        // the URL of an image
	Rendered template.HTML // of Markdown
	Since    string        // the hand-in that the changes are to: see workflow.HandIn
	Judged   bool          // a person failed that
	Changes  []handedLine
	Lines    []handedLine // the content
	Cut      bool         // lines are left out
}

// A handedLine is a line of a file, or of its changes. Old and New are its numbers, 0 on a side that lacks it.
type handedLine struct {
	Kind     string // as of a diffLine
	Old, New int
	Text     template.HTML
}

// show fills in the files that a person decides about, in about so many bytes, and returns how many they take.
func (d *decision) show(h *workflow.HandIn, room int) (size int) {
	d.Gone, d.Shown = h.Gone, make([]handedFile, len(h.Files))
	for i, f := range h.Files { // before the content of any file, which may leave no room
		d.Shown[i] = handedFile{HandedFile: f, Since: h.Since(), Judged: h.Judged}
		size += d.Shown[i].renderChanges(room - size)
	}
	for _, old := range []bool{false, true} {
		for i := range d.Shown {
			if d.Shown[i].Old == old {
				size += d.Shown[i].render(d.SessionID, d.Step, room-size)
			}
		}
	}
	return size
}

// hides matches what rendered Markdown does not show, though a reader of the file gets it: definitions of links, words
// after the language of a fence, and entities. A file with any of these is shown as text.
var hides = regexp.MustCompile("(?m)^ {0,3}\\[[^\\]]+\\]:|^[ \t>]*(?:```|~~~)[^\\s`]+[ \t]+\\S|&#?[0-9A-Za-z]+;")

// render fills in what the page shows of the file's content, in about so many bytes, and returns how many it takes.
func (f *handedFile) render(id, stepID string, room int) (size int) {
	if f.Kind == workflow.ImageFile {
		f.Image = "/sessions/" + id + "/image?" + url.Values{
			"step":   {stepID},
			"path":   {f.Path},
			"sha256": {f.SHA256},
		}.Encode()
	}
	if f.Text == "" {
		return 0
	}
	text, numbered := f.Text, true
	if f.Kind == workflow.MarkdownFile && len(text) < room && !hides.MatchString(text) && !isSlow([]byte(text)) {
		f.Rendered = markdown([]byte(show.Plain(text)))
	}
	if f.Kind == workflow.JSONFile && !strings.Contains(strings.TrimSpace(text), "\n") {
		if lines, ok := indented([]byte(text)); ok {
			text, numbered = lines, false
		}
	}
	lines := strings.Split(strings.TrimSuffix(show.Plain(text), "\n"), "\n")
	for i := range lines {
		whole := lines[i]
		lines[i] = jsontext.Clip(whole, maxLine)
		f.Cut = f.Cut || lines[i] != whole
		if size += len(lines[i]) + lineBytes; size > room {
			lines, f.Cut = lines[:i], true
			break
		}
	}
	for i, markup := range strings.Split(string(highlight(f.Path, []byte(strings.Join(lines, "\n")))), "\n") {
		line := handedLine{Kind: "same", Text: template.HTML(markup)}
		if numbered {
			line.New = i + 1
		}
		f.Lines = append(f.Lines, line)
	}
	for i, l := range f.Changes {
		if numbered && l.New > 0 && l.New <= len(f.Lines) {
			f.Changes[i].Text = f.Lines[l.New-1].Text
		}
	}

	return size
}

// JSON that is larger or nested deeper is not indented: each line begins with two blanks per level, and a small file
// could become gigabytes.
const maxLevels, maxIndented = 20, 1 << 20

// indented returns JSON with each value on a line of its own. It reports false if that cannot be.
func indented(text []byte) (string, bool) {
	var b bytes.Buffer
	if len(text) > maxIndented || jsontext.Depth(text) > maxLevels || json.Indent(&b, text, "", "  ") != nil {
		return "", false
	}
	return b.String(), true
}

// renderChanges fills in what has changed in the file, in about so many bytes, and returns how many it takes.
func (f *handedFile) renderChanges(room int) (size int) {
	for _, file := range parseDiff(attempt.RepoDiff{Diff: "diff --git a/f b/f\n" + f.Diff}) { // no line without a diff
		for _, l := range file.Lines {
			if size += len(l.Text) + lineBytes; size > room {
				f.Cut = true
				break
			}
			f.Cut = f.Cut || len(l.Text) > maxLine
			f.Changes = append(f.Changes, handedLine{
				Kind: l.Kind,
				Old:  l.Old,
				New:  l.New,
				Text: template.HTML(template.HTMLEscapeString(jsontext.Clip(l.Text, maxLine))),
			})
		}
	}
	return size
}

// image serves an image as it was handed in for a person. Its type never runs anything.
func (s *Site) image(w http.ResponseWriter, r *http.Request) {
	data, err := s.handedImage(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", workflow.ImageType(data))
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	_, _ = w.Write(data)
}

func (s *Site) handedImage(r *http.Request) ([]byte, error) {
	asked := r.URL.Query()
	p, err := s.readSession(r.Context(), session.CallerOf(r.Context()), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	missing := session.Wrong(codes.UnknownOutput, "Session %s has handed in no image %q last.", p.ID,
		asked.Get("path"))
	handed := p.State.Progress(asked.Get("step")).Handed()
	file := judging.FileHash{Path: asked.Get("path"), SHA256: asked.Get("sha256")}
	if handed == nil || !slices.Contains(handed.Files, file) {
		return nil, missing
	}
	data, err := durable.ReadIn(p.State.RootOf(p.Root, asked.Get("step")), asked.Get("path"), workflow.MaxHandedImage)
	if err != nil {
		return nil, session.NotNow(codes.UnreadableOutput, "The file cannot be read now: %v.", err)
	}
	sum := sha256.Sum256(data)
	if hex.EncodeToString(sum[:]) != asked.Get("sha256") || workflow.ImageType(data) == "" {
		return nil, missing
	}
	return data, nil
}
