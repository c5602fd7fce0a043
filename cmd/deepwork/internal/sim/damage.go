//go:build unix

package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepwork/session/workflow"
)

// damage falsifies, now and then, what servers have left on disk: the file of a
// session, or a journal of runs. No server runs.
func (w *world) damage() error {
	session, runs := w.random.IntN(4) == 0, w.random.IntN(3) == 0
	if session {
		if err := w.damageSession(workflow.TmpDir(w.project())); err != nil {
			return fmt.Errorf("damaging a file: %w", err)
		}
	}
	if runs {
		if err := w.damageJournal(w.runsFolder()); err != nil {
			return fmt.Errorf("damaging a journal: %w", err)
		}
	}
	if session || runs {
		return rebase(w.folders(), w.ledger)
	}
	return nil
}

// damageSession falsifies the file of a session.
func (w *world) damageSession(dir string) error {
	all := w.history.known()
	if len(all) == 0 {
		return nil
	}
	id := all[w.random.IntN(len(all))]
	path := filepath.Join(dir, "session_"+id+".json")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil // that it is lost shows at its next call
	}
	switch w.random.IntN(3) {
	case 0:
		data[w.random.IntN(len(data))] ^= 1 << w.random.IntN(8)
	case 1:
		data = data[:w.random.IntN(len(data))]
	case 2:
		data = nil
	}
	w.history.mu.Lock()
	w.history.damaged[id] = true
	w.history.mu.Unlock()
	return os.WriteFile(path, data, 0o600)
}

func (w *world) runsFolder() string { return w.project(".deepwork", "tmp", "runs") }

// damageJournal flips a bit of a journal of runs.
func (w *world) damageJournal(dir string) error {
	all, err := filepath.Glob(filepath.Join(dir, "runs_*.jsonl"))
	if err != nil {
		return err
	}
	// A second bit might hit what the first one has made hard to tell apart.
	all = slices.DeleteFunc(all, func(path string) bool { return w.history.journals[filepath.Base(path)] })
	if len(all) == 0 {
		return nil
	}
	path := all[w.random.IntN(len(all))]
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return err
	}
	at := w.random.IntN(len(data))
	if results := outputs.FindAllIndex(data, -1); len(results) > 0 && w.random.IntN(2) == 0 {
		result := results[w.random.IntN(len(results))]
		at = result[0] + w.random.IntN(result[1]-result[0])
	}
	if id := losing(data, at); id != "" {
		w.history.mu.Lock()
		w.history.losers[id] = true
		w.history.mu.Unlock()
	}
	if bytes.IndexByte(data[at:], '\n') >= 0 { // what follows the last line break nobody reads
		w.history.mu.Lock()
		w.history.journals[filepath.Base(path)] = true
		w.history.mu.Unlock()
	}
	data[at] ^= 1 << w.random.IntN(8)
	return os.WriteFile(path, data, 0o600)
}

// outputs are the results that stand in a journal: what is altered there mostly
// reads well.
var outputs = regexp.MustCompile(`"token_was":"[^"]*`)

var executionID = regexp.MustCompile(`"execution_id":"([0-9a-f-]{36})"`)

// losing returns the run of which a journal loses the last record with the byte at
// a place; "": none. A line break that is altered loses nothing.
func losing(journal []byte, at int) string {
	id := ""
	for line := range bytes.Lines(journal) {
		m := executionID.FindSubmatch(line)
		whole := m != nil && line[len(line)-1] == '\n'
		switch {
		case id != "":
			if whole && string(m[1]) == id {
				return "" // a later one counts
			}
		case at >= len(line):
			at -= len(line)
		case !whole || at == len(line)-1:
			return ""
		default:
			id = string(m[1])
		}
	}
	return id
}

// journalFindings are what `deepwork check` says of journals that were falsified.
var journalFindings = []string{": record ", "the line break behind record ", "a journal of runs that could not be read to its end was set aside"}

// clearJournals takes away what was falsified on purpose, and looks that it was
// noticed. No server runs.
func (w *world) clearJournals() error {
	for name := range w.history.journals {
		err := os.Remove(filepath.Join(w.runsFolder(), "damaged_"+name))
		if os.IsNotExist(err) {
			w.history.fault("the journal %s was falsified, and is not set aside", name)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// hasLost tells whether a journal has lost the last record of a run.
func (h *history) hasLost(run string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.losers[run]
}

// saysDamage tells whether the answer that there is no such run says why that may be.
func saysDamage(text string) bool {
	return strings.Contains(text, "damaged_runs_") && strings.Contains(text, "before you start it again")
}
