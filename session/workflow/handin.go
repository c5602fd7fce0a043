package workflow

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"deepwork/actor/durable"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session/judging"
	"deepwork/session/outputs"
	"deepwork/session/record"
	"deepwork/session/store"
)

// A HandIn is what a person judges: the outputs of a step that waits for a person.
type HandIn struct {
	SessionID, Workflow, Goal, Step string
	Digest                          string // of the outputs; a verdict counts only for this digest
	Asked                           time.Time
	Declined                        []string // callers whose client's user closed the form; see judging.Submission
	About                           string   // why the person says how to go on after the last round, or ""
	Notes                           string   // the agent's notes
	Folder                          string   // the folder of the files
	Reviews                         []job.Review
	Files                           []HandedFile
	// Judged reports whether a person has failed the hand-in that the diffs compare with; otherwise maybe
	// nobody has seen it.
	Judged bool
	Gone   []string // names in that hand-in that this one lacks
}

// A HandedFile is an output for a person to read. It is unescaped, as an agent wrote it: code that shows it
// must make it safe.
type HandedFile struct {
	judging.FileHash
	Full string // the absolute path; "" for a text
	Kind FileKind
	Text string // "" if it is not shown; Note says why
	Old  bool   // unchanged since the earlier hand-in
	Diff string // unified, to the earlier hand-in; "" if there was none or nothing has changed
	Note string // about the content or the diff
}

// A FileKind says how to show a file.
type FileKind string

// The kinds of files.
const (
	CodeFile     FileKind = "code" // any other text, including HTML and SVG
	MarkdownFile FileKind = "markdown"
	JSONFile     FileKind = "json"
	ImageFile    FileKind = "image"
	BinaryFile   FileKind = "binary"
)

// The limits, in bytes, of what is shown of a hand-in and kept for a diff. Images may be larger than other
// files.
const (
	maxHandedText  = 256 << 10
	maxHandedTexts = 4 << 20 // of all files of a step
	MaxHandedImage = 5 << 20
)

// HandIn returns what a step of a session waits for a person to judge. The diffs are to the hand-in that a
// person failed last or, if there is none, to the previous one. It returns the errors of
// machine.State.ToAnswer.
func (e *Engine) HandIn(ctx context.Context, id, stepID string) (*HandIn, error) {
	r, err := e.records.Read(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	q, err := r.State.ToAnswer(stepID, "")
	if err != nil {
		return nil, err
	}
	return e.describe(ctx, r, stepID, q)
}

// LastHandIn is HandIn for what was handed in last for a step that waits for no person's review.
func (e *Engine) LastHandIn(ctx context.Context, id, stepID string) (*HandIn, error) {
	r, err := e.records.Read(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	q := r.State.Progress(stepID).Handed()
	if q == nil {
		_, err := r.State.ToAnswer(stepID, "")
		return nil, err
	}
	return e.describe(ctx, r, stepID, q)
}

func (e *Engine) describe(
	ctx context.Context, r *record.Record, stepID string, q *judging.Submission,
) (*HandIn, error) {
	id := r.State.SessionID
	step, err := e.Step(r.State, stepID)
	if err != nil {
		return nil, err
	}
	h := &HandIn{
		SessionID: id,
		Workflow:  r.State.JobName + "/" + r.State.WorkflowName,
		Goal:      r.State.Goal,
		Step:      stepID,
		Digest:    q.Content,
		Asked:     q.Turn().At,
		Declined:  q.Declined,
		About:     q.Turn().About,
		Folder:    r.State.RootOf(e.exports.RootOf(r.Row), stepID),
		Reviews:   step.ReviewsBy(true),
	}
	if q.Notes != nil {
		h.Notes = *q.Notes
	}
	kept, err := e.keptHandIns(ctx, id, stepID)
	if err != nil {
		return nil, err
	}

	var earlier *handedIn
	if kept.Newest.is(q.Files) {
		earlier = kept.Earlier
	}
	texts, err := earlier.texts()
	if err != nil {
		return nil, fmt.Errorf("reading what step %s of session %s handed in before: %w", stepID, id, err)
	}

	failed := r.State.Progress(stepID).LastByPerson()
	h.Judged = failed != nil && earlier.is(failed.Files)
	room := maxHandedTexts
	for _, f := range q.Files {
		file := readHanded(h.Folder, q.Outputs, f, room)
		room -= len(file.Text)
		if earlier != nil {
			file.compare(earlier.Files, texts, h.Since())
		}
		h.Files = append(h.Files, file)
	}
	if earlier != nil {
		for _, was := range earlier.Files {
			if !slices.ContainsFunc(q.Files, was.Same) {
				h.Gone = append(h.Gone, was.Name())
			}
		}
	}
	return h, nil
}

// readHanded reads a file or text that was handed in; root is the folder of the files. Content that has
// changed since the hand-in is not shown, lest somebody judge it by mistake.
func readHanded(root string, outputs outputs.Map, f judging.FileHash, room int) HandedFile {
	h := HandedFile{FileHash: f, Kind: BinaryFile}
	if f.Output != "" {
		if v, _ := outputs.Get(f.Output); v.Text != nil {
			h.Kind, h.Text = CodeFile, seen(*v.Text)
		}
		return h
	}
	if h.Full = filepath.FromSlash(f.Path); !filepath.IsAbs(h.Full) {
		h.Full = filepath.Join(root, h.Full)
	}

	most := int64(min(maxHandedText, room))
	if slices.Contains([]string{".png", ".jpg", ".jpeg", ".gif", ".webp"}, strings.ToLower(filepath.Ext(f.Path))) {
		most = MaxHandedImage
	}

	var size int64
	var data []byte
	root, err := filepath.EvalSymlinks(root)
	if err == nil {
		size, err = sizeOf(root, f.Path)
	}
	if err == nil && size <= most {
		data, err = durable.ReadIn(root, f.Path, most)
	}
	switch {
	case err != nil:
		h.Note = fmt.Sprintf("It cannot be read here: %v.", err)
	case size > most && size <= maxHandedText:
		h.Note = "The files before it leave no room to show it here: open it yourself."
	case size > most:
		h.Note = fmt.Sprintf("It is too large to show here, with %d bytes: open it yourself.", size)
	case hash(data) != f.SHA256:
		h.Note = "It changed after it was handed in, so nobody can judge it: have the agent hand it in again."
	case len(data) == 0:
		h.Note = "It is empty."
	case ImageType(data) != "":
		h.Kind = ImageFile
	case !isText(data) || len(data) > maxHandedText:
		h.Note = "It is not text: open it yourself."
	default:
		h.Kind, h.Text = kindOf(f.Path), seen(string(data))
	}
	return h
}

// seen makes escape characters visible. A terminal, and code that makes text safe for one, would drop what
// follows them, though it is judged as well.
func seen(text string) string { return strings.ReplaceAll(text, "\x1b", `\u001b`) }

func sizeOf(root, path string) (int64, error) {
	_, info, err := durable.Locate(root, path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Since names the hand-in that the diffs compare with.
func (h *HandIn) Since() string {
	if h.Judged {
		return "last review"
	}
	return "last hand-in"
}

// compare fills in the diff to an earlier hand-in.
func (h *HandedFile) compare(earlier []judging.FileHash, texts map[string]string, since string) {
	i := slices.IndexFunc(earlier, h.Same)
	if h.Text == "" {
		return
	}
	if i < 0 {
		h.Note = "It is new since the " + since + "."
		return
	}
	was := earlier[i].SHA256
	if was == h.SHA256 {
		h.Note, h.Old = "It is as it was at the "+since+".", true
		return
	}
	old, kept := texts[was]
	if !kept {
		h.Note = "What has changed since the " + since + " is not known: the file was too large to keep, or not text."
		return
	}
	_, text, _ := strings.Cut(string(diff.Diff(since, []byte(old), "now", []byte(h.Text))), "\n")
	h.Diff = text
}

// kindOf returns the kind of a text by its file's name.
func kindOf(path string) FileKind {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".md", ".markdown":
		return MarkdownFile
	case ".json":
		return JSONFile
	}
	return CodeFile
}

// ImageType returns the content type of an image that browsers show without running anything, or "".
func ImageType(data []byte) string {
	kind := http.DetectContentType(data)
	if slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, kind) {
		return kind
	}
	return ""
}

func isText(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 }

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// handIns are the stored hand-ins of a step, a part of its session: the newest one, and the one that a person
// compares it with.
type handIns struct {
	Newest  *handedIn `json:"newest"`
	Earlier *handedIn `json:"earlier"`
}

// A handedIn is one hand-in, with its texts by their hashes as compressed JSON.
type handedIn struct {
	Files []judging.FileHash `json:"files"`
	Texts []byte             `json:"texts"`
}

// is reports whether the hand-in has exactly these files with this content. h may be nil.
func (h *handedIn) is(files []judging.FileHash) bool { return h != nil && slices.Equal(h.Files, files) }

// packHandIn returns the files for a later diff. It leaves out files that are not text, are too large, or
// have changed since they were hashed.
func packHandIn(root string, outputs outputs.Map, files []judging.FileHash) (*handedIn, error) {
	texts, room := map[string]string{}, maxHandedTexts
	for _, f := range files {
		if h := readHanded(root, outputs, f, room); h.Text != "" && len(h.Text) <= room {
			texts[f.SHA256] = h.Text
			room -= len(h.Text)
		}
	}

	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // a valid level returns no error
	err := json.NewEncoder(z).Encode(texts)
	if err == nil {
		err = z.Close()
	}
	return &handedIn{files, b.Bytes()}, err
}

// texts returns the texts by their hashes. h may be nil.
func (h *handedIn) texts() (texts map[string]string, err error) {
	if h == nil {
		return nil, nil
	}

	z, err := gzip.NewReader(bytes.NewReader(h.Texts))
	if err == nil {
		err = json.NewDecoder(io.LimitReader(z, 8*maxHandedTexts)).Decode(&texts)
	}
	return texts, err
}

// keptHandIns returns the stored hand-ins of a step.
func (e *Engine) keptHandIns(ctx context.Context, id, stepID string) (kept handIns, err error) {
	body, err := e.records.Judged(ctx, id, stepID)
	if err == nil && body != "" {
		err = json.Unmarshal([]byte(body), &kept)
	}
	if err != nil {
		err = fmt.Errorf("reading the earlier outputs of step %s of session %s: %w", stepID, id, err)
	}
	return kept, err
}

// keepHandIn has the next transition store what a call hands in for a person, unless it equals the newest
// hand-in. The earlier one is kept if a person has failed it and has not seen a later one.
func (a *sessionActor) keepHandIn(ctx context.Context, stepID string, h *handedIn) error {
	kept, err := a.engine.keptHandIns(ctx, a.id, stepID)
	if err != nil || kept.Newest.is(h.Files) {
		return err
	}
	if failed := a.state.Progress(stepID).LastByPerson(); failed == nil || !kept.Earlier.is(failed.Files) {
		kept.Earlier = kept.Newest
	}
	kept.Newest = h
	body, err := json.Marshal(kept)
	a.kept = &store.SessionPart{Kind: store.JudgedPart, Key: stepID, Body: string(body)}
	return err
}

// The limits of what a client shows of a hand-in, in characters and lines.
const (
	maxBrief      = 8000
	maxBriefFile  = 4000
	maxBriefLines = 30
)

// Brief returns a summary of a hand-in that a client shows to its user.
func (h *HandIn) Brief() string {
	var b strings.Builder
	ask := "do you pass the outputs of step '" + h.Step + "'?"
	if h.About != "" {
		ask = h.About + "\nDo you let step '" + h.Step + "' go on as it is (pass, and say why), or is it to have one " +
			"more round (fail)?"
	}
	fmt.Fprintf(&b, "Session %s (%s): %s Look at them first, in %s:\n", h.SessionID, h.Goal, ask, h.Folder)

	b.WriteString("Criteria:\n")
	for _, r := range h.Reviews {
		for _, c := range r.Criteria {
			fmt.Fprintf(&b, "- %s: %s\n", c.Name, strings.TrimSpace(c.Question))
		}
	}

	b.WriteString("Outputs:\n")
	for _, f := range h.Files {
		fmt.Fprintf(&b, "- %s\n", strings.TrimSpace(f.Name()+" "+f.Note))
		text := f.Text
		if h.Judged && (f.Old || f.Diff != "") {
			text = f.Diff
		}
		lines := strings.SplitAfterN(strings.TrimSuffix(text, "\n"), "\n", maxBriefLines+1)
		if len(lines) > maxBriefLines {
			lines[maxBriefLines] = "…\n"
		}
		switch {
		case text == "":
		case b.Len() >= maxBrief:
			b.WriteString("  (not shown here)\n")
		default: // indented, so that a file's lines cannot look like these headings
			text = jsontext.Clip(strings.TrimSuffix(strings.Join(lines, ""), "\n"), maxBriefFile)
			b.WriteString("    | " + strings.ReplaceAll(text, "\n", "\n    | ") + "\n")
		}
	}

	return jsontext.Clip(seen(b.String()), 2*maxBrief)
}
