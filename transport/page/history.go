package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/store"
)

// maxHistory is how many rows a page of the history has.
const maxHistory = 25

// A historyPage shows everything that has run, the newest first, filtered by the URL.
type historyPage struct {
	Kind, State, Workflow, Who, Text string // the filters; "" means all
	Schedule                         string // the name of one, "" means any
	Days, Since, Until               string // when it began: in the last days, and from one day to another

	Workflows []string // to choose from
	Filtered  bool
	Totals    task.HistoryTotals // of all that the filters select
	Rows      []historyRow
	Newer     bool   // it is not the first page
	Older     string // the URL of the next one, "" if it is the last
}

// A historyRow is a session, an attempt or a run.
type historyRow struct {
	task.HistoryRow
	Link, State, Workflow  string
	OfWorkflow, OfIdentity string // the URLs of the history of these alone
	Started, Took, Cost    string
}

// history shows a page of the history. The database filters and sorts, so the cost does not grow with the number of
// rows.
func (s *Site) history(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	asked := r.URL.Query()
	get := func(name string) string { return strings.TrimSpace(asked.Get(name)) }
	p := &historyPage{
		Kind:     get("kind"),
		State:    get("state"),
		Workflow: get("workflow"),
		Who:      get("who"),
		Text:     get("q"),
		Schedule: get("schedule"),
		Days:     get("days"),
		Since:    get("since"),
		Until:    get("until"),
	}
	q := task.HistoryQuery{Kind: p.Kind, State: p.State, Identity: p.Who, Text: p.Text, Schedule: p.Schedule,
		Limit: maxHistory + 1}
	if job, name, both := strings.Cut(p.Workflow, "/"); both {
		q.Job, q.Workflow = job, name
	} else {
		q.Job = p.Workflow
	}
	if s.Board == nil {
		q.Kind = task.HistorySession
	}
	p.between(&q, time.Now())
	if at, id, ok := strings.Cut(get("from"), " "); ok {
		if before, err := task.ParseTime(at); err == nil { // else from the newest
			q.Before, q.AfterID, p.Newer = before, id, true
		}
	}
	rows, err := s.Engine.Stores.Database.Board().For(who).History(ctx, q)
	if err == nil {
		p.Totals, err = s.totals(ctx, who, q)
	}
	if err != nil {
		return nil, board.Fault("listing what has run", err)
	}
	p.Workflows = s.workflows(ctx)
	if p.Workflow != "" && !slices.Contains(p.Workflows, p.Workflow) {
		p.Workflows = append(p.Workflows, p.Workflow)
	}

	asked.Del("from")
	p.Filtered = len(asked) > 0
	if len(rows) > maxHistory {
		rows = rows[:maxHistory]
		last := rows[maxHistory-1]
		asked.Set("from", task.FormatTime(last.StartedAt)+" "+last.ID)
		p.Older = "/history?" + asked.Encode()
	}

	links := map[[2]string]string{} // many rows have the same
	with := func(name, value string) string {
		key := [2]string{name, value}
		if links[key] == "" {
			links[key] = p.With(name, value)
		}
		return links[key]
	}
	for _, of := range rows {
		row := s.historyRow(of)
		row.OfWorkflow, row.OfIdentity = with("workflow", row.Workflow), with("who", row.Identity)
		p.Rows = append(p.Rows, row)
	}

	return &shown{
		view:   "history",
		title:  "History",
		data:   p,
		topics: []string{store.SessionChanged, store.TaskChanged, store.AttemptChanged, store.RemoteRunChanged},
	}, nil
}

// A totalsKey says what totals are about, and as of which number of the feed.
type totalsKey struct {
	at  uint64
	who session.Caller
	q   task.HistoryQuery
}

// knownTotals are the totals that were added up last: a page is often read again before anything changes.
type knownTotals struct {
	totalsKey
	totals task.HistoryTotals
}

func (s *Site) totals(ctx context.Context, who session.Caller, q task.HistoryQuery) (task.HistoryTotals, error) {
	q.Before, q.AfterID, q.Limit = time.Time{}, "", 0
	key := totalsKey{s.feed.position(), who, q}
	if last := s.lastTotals.Load(); last != nil && last.totalsKey == key {
		return last.totals, nil
	}

	totals, err := s.Engine.Stores.Database.Board().For(who).HistoryTotals(ctx, q)
	if err == nil {
		s.lastTotals.Store(&knownTotals{key, totals})
	}
	return totals, err
}

// between sets when what a query selects began. What is neither a number nor a day of the calendar is no filter.
func (p *historyPage) between(q *task.HistoryQuery, now time.Time) {
	day := func(text string, days int) time.Time {
		at, err := time.ParseInLocation(time.DateOnly, text, now.Location())
		if err != nil {
			return time.Time{}
		}
		return at.AddDate(0, 0, days)
	}
	q.Since, q.Until = day(p.Since, 0), day(p.Until, 1)
	days, _ := strconv.Atoi(p.Days)
	if since := now.Truncate(time.Minute).AddDate(0, 0, -days); days > 0 && since.After(q.Since) {
		q.Since = since
	}
}

// Took returns how long half of what has ended took at most, "" if nothing has ended.
func (p *historyPage) Took() string {
	if p.Totals.Seconds == nil {
		return ""
	}
	end := time.Time{}.Add(time.Duration(*p.Totals.Seconds * float64(time.Second)))
	return duration(time.Time{}, &end)
}

// Rate returns the share of what was judged that passed at the first try, in percent.
func (p *historyPage) Rate() int { return 100 * p.Totals.FirstTry / max(p.Totals.Judged, 1) }

func (s *Site) historyRow(of task.HistoryRow) historyRow {
	row := historyRow{HistoryRow: of, Link: "/attempts/" + of.ID, Started: stamp(of.StartedAt)}
	row.Title = jsontext.Clip(cmp.Or(of.Title, of.ID), 200)
	if of.EndedAt != nil { // else the page counts
		row.Took = "< 1 s"
		if of.EndedAt.Sub(of.StartedAt) >= time.Second {
			row.Took = duration(of.StartedAt, of.EndedAt)
		}
	}
	if of.Job != "" {
		row.Workflow = of.Job + "/" + of.Workflow
	}
	if of.MicroUSD != nil {
		row.Cost = fmt.Sprintf("$%.2f", board.USD(*of.MicroUSD))
	}
	if of.Kind == task.HistorySession {
		row.Link, row.State = "/sessions/"+of.ID, of.Status
	} else {
		row.State = string(s.Board.StateOf(&of.Situation))
	}
	return row
}

// With returns the URL of the history with one more filter, or without that filter if it is set.
func (p *historyPage) With(name, value string) string {
	q := url.Values{}
	for filter, current := range map[string]string{
		"kind":     p.Kind,
		"state":    p.State,
		"workflow": p.Workflow,
		"who":      p.Who,
		"q":        p.Text,
		"schedule": p.Schedule,
		"days":     p.Days,
		"since":    p.Since,
		"until":    p.Until,
	} {
		if filter == name {
			current = value
		}
		if current != "" {
			q.Set(filter, current)
		}
	}

	if len(q) == 0 {
		return "/history"
	}
	return "/history?" + q.Encode()
}
