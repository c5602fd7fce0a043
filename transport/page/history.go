package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	asked url.Values // the filters that are set

	Workflows []string           // to choose from
	Totals    task.HistoryTotals // of all that the filters select
	Rows      []historyRow
	Newer     bool   // it is not the first page
	Older     string // the URL of the next one, "" if it is the last
}

// A historyRow is a session, an attempt or a run.
type historyRow struct {
	task.HistoryRow
	Link, State, Workflow, Took, Cost string
}

// history shows a page of the history. The database filters and sorts, so the cost does not grow with the number of
// rows.
func (s *Site) history(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	asked := r.URL.Query()
	from := asked.Get("from")
	asked.Del("from")
	p := &historyPage{asked: asked}
	maps.DeleteFunc(asked, func(name string, _ []string) bool { return p.Get(name) == "" })
	q := task.HistoryQuery{
		Kind:     p.Get("kind"),
		State:    p.Get("state"),
		Identity: p.Get("who"),
		Text:     p.Get("q"),
		Schedule: p.Get("schedule"),
		Limit:    maxHistory + 1,
	}
	q.Job, q.Workflow, _ = strings.Cut(p.Get("workflow"), "/")
	if s.Board == nil {
		q.Kind = task.HistorySession
	}
	p.between(&q, time.Now())
	if at, id, ok := strings.Cut(from, " "); ok {
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
	if of := p.Get("workflow"); of != "" && !slices.Contains(p.Workflows, of) {
		p.Workflows = append(p.Workflows, of)
	}

	if len(rows) > maxHistory {
		rows = rows[:maxHistory]
		last := rows[maxHistory-1]
		p.Older = p.With("from", task.FormatTime(last.StartedAt)+" "+last.ID)
	}
	for _, of := range rows {
		p.Rows = append(p.Rows, s.historyRow(of))
	}

	return &shown{view: "history", title: "History", data: p, topics: historyTopics}, nil
}

// historyTopics are those of what the history lists.
var historyTopics = []string{store.SessionChanged, store.TaskChanged, store.AttemptChanged}

func (s *Site) totals(ctx context.Context, who session.Caller, q task.HistoryQuery) (task.HistoryTotals, error) {
	q.Before, q.AfterID, q.Limit = time.Time{}, "", 0
	type selected struct {
		who session.Caller
		q   task.HistoryQuery
	}
	return remember(s.feed, selected{who, q}, historyTopics, func() (task.HistoryTotals, error) {
		return s.Engine.Stores.Database.Board().For(who).HistoryTotals(ctx, q)
	})
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
	q.Since, q.Until = day(p.Get("since"), 0), day(p.Get("until"), 1)
	days, _ := strconv.Atoi(p.Get("days"))
	if since := now.Truncate(time.Minute).AddDate(0, 0, -days); days > 0 && since.After(q.Since) {
		q.Since = since
	}
}

// Took returns how long half of what has ended took at most, "" if nothing has ended.
func (p *historyPage) Took() string {
	if p.Totals.Seconds == nil {
		return ""
	}
	return lasted(time.Duration(*p.Totals.Seconds * float64(time.Second)))
}

// Rate returns the share of what was judged that passed at the first try, in percent.
func (p *historyPage) Rate() int { return 100 * p.Totals.FirstTry / max(p.Totals.Judged, 1) }

func (s *Site) historyRow(of task.HistoryRow) historyRow {
	row := historyRow{HistoryRow: of, Link: "/attempts/" + of.ID}
	row.Title = jsontext.Clip(cmp.Or(of.Title, of.ID), 200)
	if of.EndedAt != nil { // else the page counts
		row.Took = duration(of.StartedAt, of.EndedAt)
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

// Get returns the value of a filter, "" if it is not set.
func (p *historyPage) Get(name string) string { return strings.TrimSpace(p.asked.Get(name)) }

// Filtered reports whether a filter is set.
func (p *historyPage) Filtered() bool { return len(p.asked) > 0 }

// With returns the URL of the history with a filter, or without it if the value is "".
func (p *historyPage) With(name, value string) string {
	q := maps.Clone(p.asked)
	q.Set(name, value)
	if value == "" {
		q.Del(name)
	}
	return strings.TrimSuffix("/history?"+q.Encode(), "?")
}
