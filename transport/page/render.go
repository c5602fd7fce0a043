package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/show"
	"deepwork/transport/web"
)

// views are the parsed templates, one set for each page: the file of the page with layout.html, parts.html
// and those in parts.
type views struct {
	templates map[string]*template.Template
	assets    string // version of what is in static
}

func parseViews() (*views, error) {
	all, err := fs.Glob(embedded, "templates/*.html")
	if err != nil {
		return nil, err
	}

	v := &views{templates: make(map[string]*template.Template), assets: assetsVersion()}
	for _, file := range all {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name == "layout" || name == "parts" {
			continue
		}

		t, err := template.New("layout.html").Funcs(functions).ParseFS(embedded, "templates/layout.html",
			"templates/parts.html", "templates/parts/*.html", file)
		if err != nil {
			return nil, fmt.Errorf("parsing the page %s: %w", name, err)
		}
		v.templates[name] = t
	}

	return v, nil
}

// functions are those of the templates.
var functions = template.FuncMap{
	// stamp takes a time, or a formatted one.
	"stamp": func(t any) string {
		switch t := t.(type) {
		case time.Time:
			return stamp(t)
		case *time.Time:
			return stamp(*t)
		case *string:
			return *t
		}
		return fmt.Sprint(t)
	},
	"usd":   func(v *float64) string { return fmt.Sprintf("$%.2f", *v) },
	"short": func(id string) string { return id[:min(8, len(id))] },
	"clip":  func(n int, s string) string { return jsontext.Clip(s, n) },
	"shell": session.InShell,
	"word":  word, "heading": heading, "reliesOn": reliesOn, "by": show.By, "server": server, "took": duration,
	"paragraphs": paragraphs, "arguments": transcript.Arguments, "gist": transcript.Gist,
	"dict": func(pairs ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i+1 < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return m
	},
	"field": field, "values": values, "takes": show.Takes,
	"lines": func(s string) []string { return strings.Split(s, "\n") },
}

// A frame is what layout.html shows around a page.
type frame struct {
	Title    string
	Project  string
	Caller   session.Caller
	ReadOnly bool
	LoggedIn bool // with a cookie, which can be ended
	CSRF     string
	Events   string // URL of the page's stream
	Here     string // URL of the page
	Section  string // the first part of its path, for the navigation
	Assets   string
	Notice   string // what an action that led here has to say
	Version  string
	Help     bool       // the documentation is served
	Others   bool       // there is a list of projects
	Query    url.Values // of the URL
	Data     any
}

// May reports whether the caller may do what needs rights, so that a page can offer it.
func (f frame) May(right string) bool {
	needed := map[string]session.Rights{
		"agents": session.RightAgents,
		"merge":  session.RightMerge,
		"person": session.RightPerson,
	}
	return !f.ReadOnly && f.Caller.Has(needed[right])
}

func (s *Site) render(p *shown, who session.Caller, at uint64, r *http.Request) ([]byte, error) {
	query := r.URL.Query()
	notice := s.notice(who, query)
	query.Del("notice")
	section, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	f := frame{
		Title:    p.title,
		Project:  s.Project,
		Caller:   who,
		ReadOnly: s.ReadOnly,
		LoggedIn: who.Identity != "" && s.Callers.LoggedIn(r),
		CSRF:     s.csrf(who),
		Here:     (&url.URL{Path: r.URL.Path, RawQuery: query.Encode()}).RequestURI(),
		Section:  section,
		Assets:   s.views.assets,
		Query:    query,
		Data:     p.data,
		Notice:   notice,
		Version:  s.Version,
		Help:     s.Help != nil,
		Others:   s.AmongOthers,
	}
	if len(p.topics) > 0 {
		f.Events = fmt.Sprintf("/events?at=%d&on=%s", at, url.QueryEscape(strings.Join(p.topics, ",")))
	}
	t := s.views.templates[p.view]
	if t == nil {
		return nil, fmt.Errorf("there is no page %q", p.view)
	}

	var b bytes.Buffer
	if err := t.Execute(&b, f); err != nil {
		return nil, fmt.Errorf("rendering the page %s: %w", p.view, err)
	}
	return b.Bytes(), nil
}

// etag identifies the content of a page, without the number of the feed, which is in the URL of its stream.
func etag(page []byte) string {
	sum := sha256.New()
	before, after, _ := bytes.Cut(page, []byte(`hx-sse:connect="`)) // quotes of contents are escaped
	_, after, _ = bytes.Cut(after, []byte(`"`))
	sum.Write(before)
	sum.Write(after)
	return `W/"` + hex.EncodeToString(sum.Sum(nil)[:12]) + `"`
}

// gzipMin is the size from which pages are compressed.
const gzipMin = 4 << 10

var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return z
}}

// links are the beginnings of links of a page to paths of this server. Quotes of contents are escaped.
var links = regexp.MustCompile(`( (?:href|src|action|data-base|hx-get|hx-post|hx-sse:connect)=")/`)

// send sends a page with links for its reader, compressed if it is large and the browser accepts that.
func send(w http.ResponseWriter, r *http.Request, status int, page []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if bytes.IndexByte(page, '\x1b') >= 0 {
		page = show.Escapes.ReplaceAll(page, nil)
	}
	if prefix := web.Link(r, ""); prefix != "" {
		page = links.ReplaceAll(page, []byte("$1"+prefix+"/"))
	}
	if len(page) < gzipMin || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = w.Write(page)
		return
	}

	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(w)
	_, _ = z.Write(page)
	_ = z.Close()
}

// words are the states and the values of arguments that are worded differently for people.
var words = map[string]string{
	"todo": "to do", "inprogress": "in progress", "inreview": "in review",
	"agent": "one agent, all of it", "server": "the server, with an agent for each step",
	"merge": "merge commit", "squash": "one commit", "rebase": "its commits, rebased",
	"step": "each step begins one", "resume": "one goes through the steps that follow one another",
}

// word words a state, or a value of an argument, for people.
func word(state any) string {
	if p, ok := state.(*string); ok {
		state = *p
	}
	text := fmt.Sprint(state)
	if w, ok := words[text]; ok {
		return w
	}
	return board.State(text).Words()
}

// heading returns a text that begins with a capital.
func heading(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// server returns who runs a session: "pid 12 on host", without the "since …".
func server(owner string) string {
	who, _, _ := strings.Cut(owner, " since ")
	return strings.Replace(who, "pid ", "process ", 1)
}

// reliesOn says in a sentence what a step relies on that was finished with a submission, or returns "" if its reviews
// were overridden.
func reliesOn(u *judging.Submission) string {
	why := u.Why()
	text := relied(u, why[0])
	if text != "" && why[0].Kind == judging.ByPerson {
		if why[0].Feedback != "" {
			text += ": " + jsontext.Clip(why[0].Feedback, 2000)
		}
		if len(why) > 1 {
			others := relied(u, why[1])
			if why[1].Kind == judging.ByReason {
				others = "Overridden by the agent"
			}
			text += ". Its other reviews: " + others
		}
	}
	if text != "" && u.Imported {
		return "Imported, where it says: " + text
	}
	return text
}

// relied says what a verdict is to the step that was finished with it, or returns "".
func relied(u *judging.Submission, v judging.Verdict) string {
	switch v.Kind {
	case judging.ByReviewer:
		return "Passed by the reviewer " + u.Of(v.Kind).By
	case judging.ByProgram:
		if len(u.All(v.Kind)) > 1 {
			return "Its checks passed"
		}
		return "Its check passed"
	case judging.BySelf:
		return "Reviewed by the agent itself, which was given the criteria for exactly these outputs"
	case judging.ByPerson:
		if v.Client {
			return "Passed by a person, as the client of " + v.By + " says"
		}
		return "Passed by a person: " + v.By + " over " + v.Channel
	case judging.Off:
		return "Not reviewed: the server ran without reviews"
	case judging.NotDue:
		return "None of its reviews is of the outputs that were submitted"
	}
	return ""
}

// duration returns how long something lasted.
func duration(from time.Time, to *time.Time) string { return lasted(to.Sub(from)) }

func lasted(d time.Duration) string {
	switch {
	case d < time.Second:
		return "< 1 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// paragraphs splits a text at blank lines.
func paragraphs(text string) []string {
	all := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n")
	return slices.DeleteFunc(all, func(p string) bool { return strings.TrimSpace(p) == "" })
}
