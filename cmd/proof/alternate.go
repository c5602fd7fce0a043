package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/session/store/postgres/pgtest"
)

// An alternation is a load whose agents send each successive call of a session to the next server. The servers share
// one folder, or one database from machines of their own, each with a clone of the project. Agents follow scripts,
// which finds refusals that a single server would not give, and whatever was done twice.
type alternation struct {
	on       bool
	most     int           // calls, after which no session is begun; 0 means no bound
	review   time.Duration // how long a reviewer takes
	store    string        // the URL of a database, ownPostgres, or "": the project's own store
	machines bool          // each server has its own
	db       *pgtest.Server
	scope    string // the id of the project in the database

	people chan struct{} // holds one for each running command; few may run, as a database takes few

	ended     atomic.Int64 // sessions, as their scripts say
	decisions atomic.Int64 // of people
	reviews   int          // runs of the reviewer

	mu      sync.Mutex
	refused map[string]int // calls that one server alone would not have refused, by code
}

// peopleAtOnce is how many people answer at once.
const peopleAtOnce = 8

// ownPostgres stands for a database that the load starts.
const ownPostgres = "postgres"

// flags adds the flags of an alternating load.
func (o *alternation) flags(f *flag.FlagSet) {
	f.BoolVar(&o.on, "alternate", false,
		"send each successive call of a session to the next server, from a script with groups, nesting, reviews, "+
			"people, aborts and retries, in the newest protocol")
	f.IntVar(&o.most, "calls", 0, "with --alternate: begin no session after so many calls, whatever the duration is")
	f.DurationVar(&o.review, "review", 5*time.Second, "with --alternate: how long the reviewer takes")
	f.StringVar(&o.store, "store", "",
		"with --alternate: the `URL` of a PostgreSQL database for all servers; \""+ownPostgres+"\" starts one")
	f.BoolVar(&o.machines, "machines", false,
		"with --alternate and --store: give each server a clone of the project and a state folder of its own")
}

// valid checks the flags.
func (o *alternation) valid() error {
	switch {
	case o.on && runtime.GOOS != "linux":
		return errors.New("--alternate needs Linux, where people's terminals can be made")
	case !o.on && (o.most != 0 || o.store != "" || o.machines):
		return errors.New("--calls, --store and --machines need --alternate")
	case o.machines && o.store == "":
		return errors.New("--machines needs --store")
	case o.review < 10*time.Millisecond:
		return errors.New("--review is at least 10ms")
	}

	return nil
}

// alternateConfig is the configuration of the project: a quick review ends within its call, a slow one does not, so
// that another server is asked for its verdict.
func (l *load) alternateConfig() (string, error) {
	self, err := os.Executable()
	return fmt.Sprintf("%squality_gate:\n  agent_review_command: [%q, reviewer, %q]\n  default_max_attempts: 4\n  "+
		"max_concurrent_reviews: %d\n  reply_within: %v\n",
		loadConfig, self, l.reviewerFile(), l.connections, min(l.review*6/10, callWithin/2)), err
}

// openStore starts the database, if the load has one.
func (l *load) openStore() (err error) {
	if l.store == ownPostgres {
		if l.db, err = pgtest.Start("max_connections=300"); err != nil {
			return err
		}
		l.store = l.db.At("sim")
	}
	if l.store != "" && !l.machines {
		l.env = storeEnv(l.store, l.project())
	}
	return nil
}

// readStore makes the judge read the project from the database.
func (l *load) readStore(ctx context.Context) error {
	u, err := url.Parse(l.store)
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set("search_path", cmp.Or(q.Get("schema"), "deepwork"))
	q.Del("schema")
	u.RawQuery = q.Encode()
	l.board = func() (driver, source string) { return "pgx", u.String() }
	return l.query(ctx, "SELECT id FROM scopes WHERE name = '"+l.project()+"'", func() {
		q.Set("deepwork.scope", l.scope)
		u.RawQuery = q.Encode()
	}, &l.scope)
}

// project names the project in the database, which may also have those of other loads.
func (l *load) project() string { return fmt.Sprintf("load-%x", l.seed) }

// relay runs the scripts until the time is over or enough calls were made.
func (l *load) relay(ctx context.Context) {
	if l.most == 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, l.duration)
		defer done()
	}
	working, done := context.WithCancel(ctx)
	defer done()

	var all, editors sync.WaitGroup
	if l.edit {
		editors.Go(func() { l.world.edit(working, 100*time.Millisecond, wholeWays) })
	}
	for i := range l.connections {
		r := &relay{agent: l.agent(i), load: l}
		all.Go(func() { r.work(ctx) })
	}

	all.Wait()
	done()
	editors.Wait()
}

// enough reports whether no more sessions should begin.
func (l *load) enough() (is bool) {
	l.history.with(func() { is = l.most > 0 && l.history.calls >= l.most })
	return is
}

// refuse counts a refusal that a single server would not have given.
func (o *alternation) refuse(code string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refused == nil {
		o.refused = map[string]int{}
	}
	o.refused[cmp.Or(code, "no answer")]++
}

// judgeAlternation compares what the store has, and what reviewers did, with the histories.
func (l *load) judgeAlternation(ctx context.Context) (err error) {
	if l.store != "" {
		if err := l.readStore(ctx); err != nil {
			return fmt.Errorf("finding the project in the store: %w", err)
		}
	}
	if l.checked, err = l.judge(ctx, l.whole); err != nil {
		return err
	}
	l.reviews, err = l.judgeReviewers()
	return errors.Join(err, l.judgeShown(ctx))
}

// reportAlternation writes what only an alternating load counts.
func (l *load) reportAlternation() {
	refused, byCode := 0, []string{}
	for _, code := range slices.Sorted(maps.Keys(l.refused)) {
		refused += l.refused[code]
		byCode = append(byCode, fmt.Sprintf("%d %s", l.refused[code], code))
	}

	l.number(float64(l.history.calls), "calls", "to the servers in turn")
	l.number(float64(refused), "refused",
		strings.TrimSpace("that one server alone would not have refused  "+strings.Join(byCode, ", ")))
	l.number(float64(l.ended.Load()), "ended", "sessions, as their scripts say")
	l.number(float64(l.reviews), "reviews", "by the reviewer")
	l.number(float64(l.decisions.Load()), "decisions", "of people, at a terminal")
}
