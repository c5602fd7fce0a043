// Package transfer copies a project from one store to another: all of it, verified, or nothing.
package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
)

// A Row is a row of a table, in the form that stores exchange.
type Row struct {
	Table  string
	Values map[string]any // by column; each is nil, an int64 or a string
}

// A Side is a project in a store, as the source or the target of a copy. Its methods may be called by one
// goroutine at a time.
type Side interface {
	// Where returns the location for messages, without secrets.
	Where() string
	// Hold ensures that no server uses the project in this store until Release. If one does, its error names
	// it.
	Hold(ctx context.Context) error
	// Rows calls f with all rows, in an order in which they can be inserted.
	Rows(ctx context.Context, f func(Row) error) error
	// Adapt converts a row of another store for this one.
	Adapt(r Row) Row
	// Replace replaces all rows of the project by those that fill puts, in one transaction, which it rolls
	// back if fill fails; fill may run again. The rows that fill reads are those of the transaction.
	Replace(ctx context.Context, fill func(put func(Row) error, rows func(f func(Row) error) error) error) error
	// Release ends Hold. It may be called at any time.
	Release()
}

// Counts are the numbers of rows of each table.
type Counts map[string]int

// content has the tables whose rows mean that a store is not empty, and what a row of each is. Projects do
// not count: every server adds those of its config.
var content = []struct{ table, what string }{
	{"workflow_sessions", "session"}, {"tasks", "task"}, {"attempts", "attempt"},
	{"requests", "request_id of the board"},
	{"workflow_executions", "execution of workflows elsewhere"}, {"usages", "record of what agents used"},
}

// String returns what a project has, such as "3 sessions, 1 task", or "nothing".
func (c Counts) String() string {
	var all []string
	for _, t := range content {
		switch n := c[t.table]; {
		case n == 1:
			all = append(all, "1 "+t.what)
		case n > 1:
			first, rest, _ := strings.Cut(t.what, " ")
			all = append(all, strings.TrimSpace(fmt.Sprintf("%d %ss %s", n, first, rest)))
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// placeKey precedes the place in the JSON that package machine writes.
const placeKey = `"place": `

// Unplaced returns a function that removes a place from the frames of sessions and the progress of their
// steps.
func Unplaced(p task.Place) func(text string) string {
	at := placeKey + `\{\s*"machine_id":\s*` + regexp.QuoteMeta(string(jsontext.Quote(p.MachineID))) +
		`,\s*"machine_name":\s*"(?:[^"\\]|\\.)*",\s*"root":\s*` +
		regexp.QuoteMeta(string(jsontext.Quote(p.Root))) + `\s*\}`
	found := regexp.MustCompile(`,\s*` + at + `|` + at + `,\s*`)
	return func(text string) string { return found.ReplaceAllLiteralString(text, "") }
}

// Placed returns the progress of a step with a place, unless it has one.
func Placed(step string, p task.Place) string {
	at, err := jsontext.Encode(p)
	if err != nil || strings.Contains(step, placeKey+"{") {
		return step
	}
	return strings.Replace(step, "{", "{"+placeKey+string(at)+", ", 1)
}

// Copy copies a project. Both sides are held meanwhile. The target must have nothing of the project, and the
// source is not changed. Before the copy becomes visible, both sides are read again and compared. An
// execution that is starting or running is refused: its agent works on one machine, and only the server of
// its store records its end.
func Copy(ctx context.Context, from, to Side) (Counts, error) {
	for _, s := range []Side{from, to} {
		defer s.Release()
		if err := s.Hold(ctx); err != nil {
			return nil, fmt.Errorf("copying %s to %s: %w", from.Where(), to.Where(), err)
		}
	}

	there, err := sum(ctx, to, to)
	if err == nil && there.counts.String() != "nothing" {
		err = fmt.Errorf("it has %v of this project already, and only an empty one is filled: choose another target "+
			"(another file or, in a database, a schema by ?schema=NAME or a project by --project)", there.counts)
	}
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", to.Where(), err)
	}

	var read summary
	err = to.Replace(ctx, func(put func(Row) error, rows func(func(Row) error) error) error {
		read = summary{counts: Counts{}, sums: map[string][sha256.Size]byte{}} // fill may run again
		err := from.Rows(ctx, func(r Row) error {
			if state := r.Values["state"]; r.Table == "executions" && (state == "starting" || state == "running") {
				return fmt.Errorf("execution %v of attempt %v is %v, and cannot be moved while its agent works: end "+
					"it with stop_attempt, or start a server on that store until it has recorded its end",
					r.Values["id"], r.Values["attempt_id"], state)
			}
			r = to.Adapt(r)
			read.add(r)
			return put(r)
		})
		if err != nil {
			return err
		}
		for where, rows := range map[string]func(func(Row) error) error{
			from.Where(): func(f func(Row) error) error { return from.Rows(ctx, f) }, to.Where(): rows,
		} {
			now := summary{counts: Counts{}, sums: map[string][sha256.Size]byte{}}
			err := rows(func(r Row) error {
				now.add(to.Adapt(r))
				return nil
			})
			if err == nil {
				err = read.compare(now)
			}
			if err != nil {
				return fmt.Errorf("verifying the copy in %s: %w", where, err)
			}
		}

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("copying %s to %s: %w", from.Where(), to.Where(), err)
	}
	return read.counts, nil
}

// A summary identifies rows, whatever their order.
type summary struct {
	counts Counts
	sums   map[string][sha256.Size]byte // for each table, the XOR of the sums of its rows
}

// sum reads all rows of a side in the form that to has them.
func sum(ctx context.Context, s, to Side) (summary, error) {
	all := summary{counts: Counts{}, sums: map[string][sha256.Size]byte{}}
	err := s.Rows(ctx, func(r Row) error {
		all.add(to.Adapt(r))
		return nil
	})
	return all, err
}

func (s *summary) add(r Row) {
	h := sha256.New()
	if slices.ContainsFunc(tables, func(t table) bool { return t.name == r.Table && t.order != "" }) {
		fmt.Fprintln(h, s.counts[r.Table])
	}
	for _, column := range slices.Sorted(maps.Keys(r.Values)) {
		fmt.Fprintf(h, "%s %#v\n", column, r.Values[column])
	}
	total := s.sums[r.Table]
	for i, b := range h.Sum(nil) {
		total[i] ^= b
	}
	s.sums[r.Table] = total
	s.counts[r.Table]++
}

// compare returns an error that names the tables that differ.
func (s summary) compare(o summary) (err error) {
	names := maps.Clone(s.counts)
	maps.Copy(names, o.counts)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if s.sums[name] != o.sums[name] || s.counts[name] != o.counts[name] {
			err = errors.Join(err, fmt.Errorf("%s differ: %d were copied, and there are %d: something else changed "+
				"them meanwhile", name, s.counts[name], o.counts[name]))
		}
	}
	return err
}
