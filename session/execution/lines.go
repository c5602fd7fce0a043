package execution

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"slices"
)

// A line is one of a journal.
type line struct {
	rec    *record // with err only whose run it may have been, and nil where that cannot be read
	raw    []byte  // without its end
	err    error   // why it cannot be trusted
	joined bool    // the line break behind it was altered
	doubt  error   // why what came later, and may have been of its run, cannot be trusted
}

// damaged tells whether a line, or its end, is not as it was written.
func (l *line) damaged() error {
	switch {
	case l.err != nil && !errors.Is(l.err, errNewer):
		return l.err
	case l.joined:
		return errors.New("the line break behind a record was altered")
	}
	return nil
}

// lines returns what stands in a journal. What follows the last line break was
// being written when its server ended, and is left out; but a record that is whole
// and has something else than a line break behind it was not: that was altered, and
// neither this record nor the next one is lost by it.
func lines(journal []byte) iter.Seq[line] {
	return func(yield func(line) bool) {
		for raw := range bytes.Lines(journal) {
			raw, ended := bytes.CutSuffix(raw, []byte("\n"))
			if ended {
				raw = bytes.TrimSpace(raw)
			}
			for len(raw) > 0 {
				l := line{raw: raw}
				if ended {
					l = readLine(raw)
				}
				n := 0
				if l.rec == nil || l.err != nil {
					n = sealedEnd(raw)
				}
				if n == 0 || n == len(raw) {
					if ended && !yield(l) {
						return
					}
					break
				}
				l = readLine(raw[:n])
				l.joined = true
				if !yield(l) {
					return
				}
				raw = raw[n+1:]
			}
		}
	}
}

func readLine(raw []byte) line {
	sealed, err := verify(raw)
	var r *record
	if err == nil {
		r, err = parseRecord(raw)
	}
	if err == nil && !sealed {
		err = onlyKnown(raw)
	}
	if err != nil && !errors.Is(err, errNewer) {
		r = salvage(raw)
	}
	return line{rec: r, raw: raw, err: err}
}

// onlyKnown is the error of a record without a seal that no older version has
// written: those had no keys but the ones that are known, so a seal that was
// altered does not make a line an old one.
func onlyKnown(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(new(record))
}

// salvage reads from a line that cannot be trusted which run it may have been of,
// and whose; nil: that cannot be read. What the run came to is not looked at.
func salvage(raw []byte) *record {
	r := &record{FormatVersion: recordFormat, State: starting, StatusSupported: true}
	wanted := map[string]any{
		"execution_id": &r.ExecutionID, "identity": &r.Identity, "source": &r.Source,
		"workflow_id": &r.WorkflowID, "workflow_name": &r.WorkflowName, "started_at": &r.StartedAt,
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			break
		}
		name, _ := key.(string)
		into, is := wanted[name]
		if !is {
			into = new(json.RawMessage)
		}
		if dec.Decode(into) != nil {
			break
		}
		delete(wanted, name) // the first one counts
	}
	_, noID := wanted["execution_id"]
	_, noIdentity := wanted["identity"]
	if noID || noIdentity || !isID(r.ExecutionID) {
		return nil
	}
	// It is written down again, and must fit.
	if len(r.Identity)+len(r.Source)+len(r.WorkflowID)+len(r.WorkflowName) > recordLimit/8 {
		return nil
	}
	return r
}

// latest returns the last line of each run, and those that cannot be trusted, in
// their order.
func latest(journal []byte) []line {
	var all []line
	at := make(map[string]int) // of the last line of each run
	var stray error            // of the last line of which it is not sure whose it is
	strayAt := 0
	for l := range lines(journal) {
		switch {
		case l.err == nil:
			if i, known := at[l.rec.ExecutionID]; known {
				l.joined = l.joined || all[i].joined
				all[i] = line{}
			}
			at[l.rec.ExecutionID] = len(all)
		case errors.Is(l.err, errNewer):
		default:
			i, known := 0, false
			if l.rec != nil {
				i, known = at[l.rec.ExecutionID]
			}
			if known {
				all[i].doubt = l.err
			} else {
				stray, strayAt = l.err, len(all) // the id may be what was altered
			}
		}
		all = append(all, l)
	}
	for i := range all {
		l := &all[i]
		if l.rec == nil {
			continue
		}
		if _, known := at[l.rec.ExecutionID]; known && l.err != nil {
			l.rec = nil // it is told by those of its lines that can be trusted
		} else if l.err == nil && l.doubt == nil && i < strayAt {
			l.doubt = stray
		}
	}
	return slices.DeleteFunc(all, func(l line) bool { return l.raw == nil })
}
