package page

import (
	"context"
	"net/http"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// maxRecent is how many sessions and attempts that have ended the page Now lists.
const maxRecent = 25

// An item is an entry of a list of the page Now.
type item struct {
	Kind   string // what it is, in a word or two
	Title  string
	About  string
	Link   string
	Status string
	Since  time.Time
	// Command is what a person runs in a terminal, "" if the page behind the link is enough.
	Command string
}

// matches reports whether an item has each word of a filter.
func (i item) matches(filter string) bool {
	text := strings.ToLower(i.Kind + " " + i.Title + " " + i.About + " " + i.Status)
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

type nowPage struct {
	Filter                 string
	Needs, Working, Recent []item
	More                   int // items of Recent that are left out
	Empty                  bool
}

func (s *Site) now(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	p := &nowPage{Filter: strings.TrimSpace(r.URL.Query().Get("q"))}
	if s.Board != nil {
		waits, err := s.Board.NeedsAttention(ctx, who)
		if err != nil {
			return nil, err
		}
		for _, a := range waits.Items {
			p.Needs = append(p.Needs, attentionItem(a))
		}
	}
	sessions, err := s.sessions(ctx, who)
	if err != nil {
		return nil, err
	}
	for _, i := range sessions {
		switch {
		case i.Err != nil:
			p.Needs = append(p.Needs, item{Kind: "session", Title: i.SessionID, About: i.Err.Error(), Link: "/sessions/" + i.SessionID, Status: i.Status, Since: i.UpdatedAt})
		case i.Status == "active":
			p.Working = append(p.Working, sessionItem(i))
		default:
			p.Recent = append(p.Recent, sessionItem(i))
		}
	}
	p.Empty = len(p.Needs)+len(p.Working)+len(p.Recent) == 0
	p.filter()
	return &shown{view: "now", title: "Now", data: p, on: []string{store.SessionChanged, store.TaskChanged, store.AttemptChanged, store.ExecutionChanged, "config"}}, nil
}

func (p *nowPage) filter() {
	for _, list := range []*[]item{&p.Needs, &p.Working, &p.Recent} {
		var kept []item
		for _, i := range *list {
			if i.matches(p.Filter) {
				kept = append(kept, i)
			}
		}
		*list = kept
	}
	if p.More = len(p.Recent) - maxRecent; p.More > 0 {
		p.Recent = p.Recent[:maxRecent]
	}
}

func sessionItem(i workflow.SessionInfo) item {
	about := i.JobName + "/" + i.WorkflowName
	status := i.Status
	if i.Status == "active" {
		about += ", step " + i.Step
		if !i.OwnerAlive {
			status = "paused"
			about += "; no server runs it"
		}
	}
	return item{Kind: "session", Title: i.Goal, About: about, Link: "/sessions/" + i.SessionID, Status: status, Since: i.UpdatedAt}
}

// attentionItem returns what needs a person, with the page that shows it.
func attentionItem(a attempt.Attention) item {
	i := item{Kind: strings.ReplaceAll(a.Kind, "_", " "), Title: a.Title, Command: a.Command, Status: "needs you"}
	if a.Since != nil {
		i.Since, _ = time.Parse(time.RFC3339, *a.Since) // this program has written it
	}
	switch a.Kind {
	case attempt.AttentionFailed, attempt.AttentionReview:
		i.Link, i.Command = "/attempts/"+a.ID, ""
	case attempt.AttentionStep:
		i.Link = "/sessions/" + a.ID
	case attempt.AttentionUntrusted:
		i.Link = "/trust"
	default:
		i.Link = "/board"
	}
	return i
}
