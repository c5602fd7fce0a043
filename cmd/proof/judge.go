package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
)

// A record has the fields of a session file that are checked.
type record struct {
	Session    string          `json:"session_id"`
	Job        string          `json:"job_name"`
	Workflow   string          `json:"workflow_name"`
	Goal       string          `json:"goal"`
	Status     string          `json:"status"`
	Current    string          `json:"current_step_id"`
	Progress   json.RawMessage `json:"step_progress"`
	Parent     string          `json:"parent_session_id"`
	Reason     string          `json:"abort_reason"`
	Definition struct {
		Source string `json:"source"`
	} `json:"definition"`
	History []struct {
		From     string          `json:"from_step"`
		To       string          `json:"to_step"`
		Progress json.RawMessage `json:"step_progress"`
	} `json:"history"`
}

// A progress is the record of a step in a file.
type progress struct {
	CompletedAt *time.Time      `json:"completed_at"`
	Outputs     json.RawMessage `json:"outputs"`
	Notes       string          `json:"notes"`
	Unreported  bool            `json:"unreported"`
	Attempts    int             `json:"quality_attempts"`
	Evidence    struct {
		Kind string `json:"kind"`
	} `json:"evidence"`
}

func sessionFile(root, id string) string {
	return filepath.Join(root, ".deepwork", "tmp", "session_"+id+".json")
}

// sessionFileName matches session files, and what was set aside as damaged.
var sessionFileName = regexp.MustCompile(`^(?:(damaged)_[a-z]+|session)_([^_.]*)(?:_.*|\.json)$`)

func readRecord(root, id string) (r record, err error) {
	data, err := os.ReadFile(sessionFile(root, id))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

// state returns the state in a file in the form of the model.
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
		all = append(all, progressOf(m.Name, p.CompletedAt != nil, p.Unreported, finished{outputs.String(), p.Notes}))
	}
	return strings.Join(all, " ")
}

// judge compares the session files with the history, in which each is another read of its session,
// and checks the history. It returns how many it compared. No server may run.
func (w *world) judge() (int, error) {
	entries, err := os.ReadDir(filepath.Dir(sessionFile(w.root, "")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	h := w.history
	marred := h.marred()
	compared, there := 0, map[string][]string{} // ids, by goal
	for _, e := range entries {
		m := sessionFileName.FindStringSubmatch(e.Name())
		if m == nil || m[1] == "" && h.isDamaged(m[2]) || m[1] != "" && (strings.HasPrefix(m[2], litterID) || slices.Contains(marred, m[2])) {
			continue
		}
		if m[1] != "" {
			h.fault("a file that cannot be read", "%s was set aside as damaged", e.Name())
			continue
		}
		compared++
		r, err := readRecord(w.root, m[2])
		goal := w.compare(m[2], r, err)
		there[goal] = append(there[goal], m[2])
	}
	h.once("session", there, func(_ string, e *effect) bool { return e.id != "" && !h.isDamaged(e.id) })
	h.check()
	return compared, nil
}

// compare adds the record of a session to its history, and returns the session's goal. err says why
// the record cannot be read.
func (w *world) compare(id string, r record, err error) (goal string) {
	h := w.history
	s := h.sessions[id]
	if err != nil {
		h.fault("a file that cannot be read", "session %s: %v", id, err)
		if s != nil {
			return s.start.Goal
		}
	} else if s != nil {
		h.add(-1, id, input{Tool: "file"}, h.now(), r.state(), h.now())
		w.judgeRecord(s, r)
	} else if e := h.effects["session"][r.Goal]; e != nil && e.job != r.Job {
		h.fault("a session that is another than was started", "session %s: it was asked of %s, and its file says %s", id, e.job, r.Job)
	}
	return r.Goal
}

// evidence is what the steps with reviews rest on once they are finished.
var evidence = map[string]string{reviewedStep: "override", judgedStep: "reviewer", personStep: "passed_by_person"}

// judgeRecord checks what no model covers: what must not change, the definition, and the order of
// times.
func (w *world) judgeRecord(s *session, r record) {
	h, in := w.history, s.start
	for m := range jsontext.Members(r.Progress) {
		var p progress
		if err := json.Unmarshal(m.Value, &p); err != nil {
			continue // the state shows it
		}
		if m.Name == judgedStep && s.judged != unknown && p.Attempts != s.judged {
			h.fault("a review that counts more than once, or not", "session %s: step %s had %d attempts, want %d", r.Session, m.Name, p.Attempts, s.judged)
		}
		if want := evidence[m.Name]; want != "" && p.CompletedAt != nil && p.Evidence.Kind != want {
			h.fault("a step with reviews that rests on something else", "session %s: step %s was finished, and its evidence is %q, want %q", r.Session, m.Name, p.Evidence.Kind, want)
		}
	}
	if r.Goal != in.Goal || r.Job != in.Job || r.Workflow != in.Workflow || in.Parent != "" && r.Parent != in.Parent {
		h.fault("a session that is another than was started", "session %s: started by %+v; its file says %s/%s, goal %q, parent %q", r.Session, in, r.Job, r.Workflow, r.Goal, r.Parent)
	}
	if save := w.saves.of(r.Definition.Source); save == 0 || save < s.save {
		h.fault(wrongDefinition, "session %s: its file names save %d of job.yml (%s), and a step was begun with save %d", r.Session, save, r.Definition.Source, s.save)
	}
}

// verify runs `deepwork check` at each place, which must find nothing but the findings but.
func (w *world) verify(ctx context.Context, when string, but ...string) {
	for _, s := range w.places() {
		text, err := w.deepwork(ctx, s, "check").CombinedOutput()
		if !w.strict {
			but = append(but, w.history.marred()...) // by now
		}
		if (err != nil || strings.Contains(string(text), foreign)) && finds(string(text), but) {
			w.history.fault("deepwork check", "%s, at server %d: %v\n%s", when, s.number, err, text)
		}
	}
}

// foreign is what check notes of a session that was not sealed here, as it is: one of a
// simulation was altered.
const foreign = "was not written by this installation"

// noFinding matches lines that are a remedy, no fault, or the verdict.
var noFinding = regexp.MustCompile(`^( |note: )| problems?\n$|: all is well\n$`)

// finds reports whether a report has findings other than the allowed ones.
func finds(report string, but []string) bool {
	for line := range strings.Lines(report) {
		if (!noFinding.MatchString(line) || strings.Contains(line, foreign)) && !slices.ContainsFunc(but, func(b string) bool { return strings.Contains(line, b) }) {
			return true
		}
	}
	return len(but) == 0
}
