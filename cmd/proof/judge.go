package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/session/judging"
)

// A record has the fields of a session's record that are checked.
type record struct {
	Session    string          `json:"session_id"`
	Revision   int64           `json:"revision"`
	Job        string          `json:"job_name"`
	Workflow   string          `json:"workflow_name"`
	Goal       string          `json:"goal"`
	Status     string          `json:"status"`
	Current    string          `json:"current_step_id"`
	Progress   json.RawMessage `json:"step_progress"`
	Parent     string          `json:"parent_session_id"`
	CalledAs   string          `json:"called_as"`
	Reason     string          `json:"abort_reason"`
	Updated    time.Time       `json:"updated_at"`
	Imported   *time.Time      `json:"imported_at"`
	Definition struct {
		Source string `json:"source"`
	} `json:"definition"`
	History []struct {
		From     string          `json:"from_step"`
		To       string          `json:"to_step"`
		Progress json.RawMessage `json:"step_progress"`
	} `json:"history"`
}

// A progress is the record of a step.
type progress struct {
	StartedAt   time.Time       `json:"started_at"`
	CompletedAt *time.Time      `json:"completed_at"`
	Outputs     json.RawMessage `json:"outputs"`
	Notes       string          `json:"notes"`
	Unreported  bool            `json:"unreported"`
	Tries       int             `json:"quality_attempts"`
	Child       string          `json:"child"`
	Round       round           `json:"round"`
	Finished    int64           `json:"finished_with"`
	Submissions []*judging.Submission
}

// reliesOn returns the kind of the verdict that a finished step relies on, or "".
func (p progress) reliesOn() judging.Kind {
	if u := (judging.Past{Submissions: p.Submissions}).By(p.Finished); u != nil {
		return u.Why()[0].Kind
	}
	return ""
}

// A round is the number of a repetition.
type round struct {
	Number int `json:"number"`
}

// state returns the state in a record in the form of the model.
func (r *record) state() string {
	said := fmt.Sprintf("%s at %s: %s; %q", r.Status, r.Current, progressIn(r.Progress), r.Reason)
	for _, w := range r.History {
		said += fmt.Sprintf("; from %s to %s: %s", w.From, w.To, progressIn(w.Progress))
	}
	return said
}

func progressIn(steps json.RawMessage) string {
	var all []string
	for m := range jsontext.Members(steps) {
		var p progress
		var outputs bytes.Buffer
		err := json.Unmarshal(m.Value, &p)
		if err == nil {
			err = json.Compact(&outputs, p.Outputs)
		}
		if err != nil {
			return err.Error()
		}

		plain := storedText.ReplaceAllString(outputs.String(), "$1")
		all = append(all, progressOf(m.Name, p.Round.Number, p.CompletedAt != nil, p.Unreported,
			finished{plain, p.Notes}))
	}
	return joined(all, " ")
}

// storedText is a text in the record of a step.
var storedText = regexp.MustCompile(`\{"text":("(?:[^"\\]|\\.)*")\}`)

// judge adds each session in the database to the history as one more read, compares the exports with the database, and
// checks the history. It returns how many sessions it compared. No server may run.
func (w *world) judge(ctx context.Context, export func(kept)) (int, error) {
	all, err := w.kept(ctx)
	if err != nil {
		return 0, err
	}
	w.judgeKept(all, export)
	return len(all), nil
}

func (w *world) judgeKept(all []kept, export func(kept)) {
	there := map[string][]string{}  // ids, by goal
	called := map[string][]string{} // workflows of steps, by their parents
	for _, k := range all {
		w.compare(k.id, k.record, k.err)
		if k.record.CalledAs == "" {
			there[k.goal] = append(there[k.goal], k.id)
		} else {
			called[k.record.Parent] = append(called[k.record.Parent], k.id)
		}
		if k.err == nil {
			export(k)
		}
	}
	for parent, ids := range called {
		if len(ids) > 1 { // nobody goes back to it
			w.history.fault("a workflow of a step that was begun more than once", "of session %s: %v", parent, ids)
		}
	}
	w.history.once("session", there, func(_ string, e *effect) bool { return e.id != "" })
	w.history.check()
}

// compare adds the record of a session to its history. err says why the record cannot be read.
func (w *world) compare(id string, r record, err error) {
	h := w.history
	s := h.sessions[id]
	if err != nil {
		h.fault("a session that cannot be read", "session %s: %v", id, err)
	} else if s != nil {
		h.add(-1, id, input{Tool: "file"}, h.now(), r.state(), h.now())
		w.judgeRecord(s, r)
	} else if e := h.effects["session"][r.Goal]; e != nil && e.job != r.Job {
		h.fault("a session that is another than was started", "session %s: it was asked of %s, and its record says %s",
			id, e.job, r.Job)
	}
}

// evidence is why the steps with reviews may be finished.
var evidence = map[string]judging.Kind{
	reviewedStep: judging.ByReason,
	judgedStep:   judging.ByReviewer,
	personStep:   judging.ByPerson,
}

// judgeRecord checks what no model covers: what must not change, the definition, and the order of
// times.
func (w *world) judgeRecord(s *session, r record) {
	h, in := w.history, s.start
	for m := range jsontext.Members(r.Progress) {
		var p progress
		if err := json.Unmarshal(m.Value, &p); err != nil {
			continue // the state shows it
		}
		if m.Name == judgedStep && s.judged != unknown && p.Tries != s.judged {
			h.fault("a review that counts more than once, or not", "session %s: step %s had %d tries, want %d",
				r.Session, m.Name, p.Tries, s.judged)
		}
		step, _ := ofItem(m.Name)
		if want := evidence[step]; want != "" && p.CompletedAt != nil && p.reliesOn() != want {
			h.fault("a step with reviews that rests on something else",
				"session %s: step %s was finished, and its evidence is %q, want %q", r.Session, m.Name,
				p.reliesOn(), want)
		}
	}
	if r.Goal != in.Goal || r.Job != in.Job || r.Workflow != in.Workflow || in.Parent != "" && r.Parent != in.Parent {
		h.fault("a session that is another than was started",
			"session %s: started by %+v; its record says %s/%s, goal %q, parent %q", r.Session, in, r.Job, r.Workflow,
			r.Goal, r.Parent)
	}

	if r.Imported != nil && r.Status != "active" && r.Definition.Source == "" {
		return // an ended session needs none, which is gone with the database
	}
	if save := w.saves.of(r.Definition.Source); save == 0 || save < s.save {
		h.fault(wrongDefinition, "session %s: its record names save %d of job.yml (%s), and a step was begun with "+
			"save %d", r.Session, save, r.Definition.Source, s.save)
	}
}

// verify runs `deepwork check` at each place, which must find nothing except but, and returns what it printed.
func (w *world) verify(ctx context.Context, when string, but ...string) (all string) {
	for _, s := range w.places() {
		text, err := w.deepwork(ctx, s, "check").CombinedOutput()
		all += string(text)
		if err != nil && finds(string(text), but) {
			w.history.fault("deepwork check", "%s, at server %d: %v\n%s", when, s.number, err, text)
		}
	}
	return all
}

// noFinding matches lines that are a remedy, no fault, or the verdict.
var noFinding = regexp.MustCompile(`^( |note: )| problems?\n$|: all is well\n$`)

// finds reports whether a report has findings other than the allowed ones.
func finds(report string, but []string) bool {
	for line := range strings.Lines(report) {
		if !noFinding.MatchString(line) &&
			!slices.ContainsFunc(but, func(b string) bool { return strings.Contains(line, b) }) {
			return true
		}
	}
	return len(but) == 0
}
