package page_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
)

// Without a schedule, the page says how to add one. With one, it says what comes next; it can be paused, resumed, and
// run now.
func TestSchedulesPage(t *testing.T) {
	s, _, b := open(t)
	b.do("GET", "/schedules", nil).is(http.StatusOK, "There are no schedules yet",
		"deepwork schedule add weekly \"0 9 * * mon\" JOB/WORKFLOW")
	b.do("GET", "/schedules/weekly", nil).is(http.StatusNotFound, "There is no schedule weekly.")

	next := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Hour)
	pagetest.Schedule(t, s.root, "weekly", "plan", "Sail away", next)
	at := `datetime="` + next.Format(time.RFC3339) + `"`
	b.do("GET", "/schedules", nil).is(http.StatusOK, `<a href="/schedules/weekly">weekly</a>`, at, "not yet",
		"trip/plan", "<code>@hourly</code>", "UTC")
	b.do("GET", "/schedules/weekly", nil).is(http.StatusOK, at, "Sail away", "None was due yet.", "start the latest")

	csrf := b.csrf("/schedules/weekly")
	b.act("/schedules/weekly/pause", csrf).leads("/schedules/weekly")
	b.do("GET", "/schedules/weekly", nil).is(http.StatusOK, `<span class="status paused">`, "Resume weekly").lacks(at)
	b.act("/schedules/weekly/resume?back=/schedules", csrf).leads("/schedules")
	b.do("GET", "/schedules", nil).is(http.StatusOK, "Pause weekly").lacks("Resume weekly")
	run := b.act("/schedules/weekly/run", csrf).is(http.StatusSeeOther).Header.Get("Location")
	b.do("GET", run, nil).is(http.StatusOK, "Sail away")
	b.do("GET", "/schedules/weekly", nil).is(http.StatusOK, "None was due yet.")
}

// What was due is shown with its run, by which the history filters. After the failure it needs a person, whose button
// resumes it.
func TestADueTimeOnThePages(t *testing.T) {
	s, call, b := open(t)
	call.Plan("Stay here")
	pagetest.Schedule(t, s.root, "weekly", "plan", "Sail away\n! exit 1", time.Now())
	var page string
	testkit.Until(t, "its run has failed", func() bool {
		page = b.get("/schedules/weekly")
		return strings.Contains(page, `<span class="status failed">`)
	})
	testkit.ContainsAll(t, page, []string{"It starts nothing, since its last runs failed.", "Resume weekly"})
	run := find(t, regexp.MustCompile(`<a href="(/attempts/[^"]+)"><span class="status failed">`), page)
	b.do("GET", "/history?schedule=weekly", nil).is(http.StatusOK, run, "Sail away", "schedule weekly ×").
		lacks("Stay here")
	b.do("GET", "/history?schedule=other", nil).is(http.StatusOK, "Nothing here matches the filter.")

	needs := sections(b.get("/"))["needs"]
	testkit.ContainsAll(t, needs, []string{`<a href="/schedules/weekly">Schedule weekly</a>`,
		"It is paused: its last runs (1) failed.", `action="/schedules/weekly/resume"`})
	b.act("/schedules/weekly/resume?back=/", b.csrf("/")).leads("/")
	testkit.Lacks(t, sections(b.get("/"))["needs"], []string{"Schedule weekly"}, "it needs a person")
}

// A caller sees no schedules of others, and needs a right to change their own.
func TestSchedulesOfOthers(t *testing.T) {
	root := pagetest.Project(t)
	s, _, all := as(t, root, config.Token{Name: "ann", Rights: config.RightAgents})
	pagetest.Schedule(t, s.root, "weekly", "plan", "Sail away", time.Now().Add(48*time.Hour))
	all[0].do("GET", "/schedules", nil).is(http.StatusOK, "There are no schedules yet").lacks("weekly</a>")
	all[0].do("GET", "/schedules/weekly", nil).is(http.StatusNotFound)
	all[0].act("/schedules/weekly/pause", all[0].csrf("/board")).is(http.StatusNotFound)
}
