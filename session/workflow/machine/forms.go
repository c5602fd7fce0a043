package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// An ItemInfo is the item of a list that a step is about.
type ItemInfo struct {
	Index int             `json:"index" jsonschema:"position in the list, from 0"`
	Count int             `json:"count" jsonschema:"number of items in the list"`
	Value json.RawMessage `json:"value" jsonschema:"the item: a text or an object"`
}

// A Round says which round of its steps a repeated entry is in.
type Round struct {
	Number int    `json:"number" jsonschema:"number of the round, from 1"`
	AtMost int    `json:"at_most" jsonschema:"number of rounds after which a person is asked"`
	Until  string `json:"until" jsonschema:"what ends the rounds"`
	Failed string `json:"failed,omitempty" jsonschema:"why the last round did not end them"`
}

// A RoundEnd is what the program has said that ends the rounds of a form.
type RoundEnd struct {
	Passed bool   `json:"passed"`
	Why    string `json:"why,omitempty"` // it has not passed
}

// ListBytes is the largest list of items, in bytes.
const ListBytes = 1 << 20

// ShownItems is the number of steps of items that a reply describes or names.
const ShownItems = 20

// ParseItems reads the list of an output: a JSON list of texts or objects.
func ParseItems(output string, raw []byte, most int) (items []json.RawMessage, err error) {
	refuse := func(format string, args ...any) error {
		return session.Wrong(codes.BadList, "Output '%s' is the list of items of a later entry, and "+format, append([]any{output}, args...)...).With("output", output)
	}
	if len(raw) > ListBytes {
		return nil, refuse("has %d bytes, more than %d: hand in a shorter list, whose items name files.", len(raw), ListBytes)
	}
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, refuse("is not a JSON list (%v). Hand in a list such as [\"a\", \"b\"].", err)
	}
	for i, item := range items {
		if kind := jsontext.Kind(item); kind != "string" && kind != "object" {
			return nil, refuse("its element %d is %s. Its elements must be texts or objects.", i, kindOf(item))
		}
	}
	if len(items) > most {
		return nil, refuse("has %d items, more than max_items allows (%d). Make fewer, larger items, or have the user raise max_items in job.yml.", len(items), most)
	}
	return items, nil
}

// A ListWanted is an output of a step that a later for_each goes through.
type ListWanted struct {
	Output string
	Most   int // items
}

// Lists returns the outputs of a step that later entries go through.
func Lists(def *Definition, st *job.Step) (all []ListWanted) {
	here := def.Workflow.Find(st.ID)
	for i, f := range def.Workflow.Forms {
		if f != nil && f.ForEach != nil && i > here && st.Output(f.ForEach.Output) != nil {
			all = append(all, ListWanted{f.ForEach.Output, f.ForEach.MaxItems})
		}
	}
	return all
}

// newest returns the progress of the last finished step in some entries that has an output, or nil: a later one
// was finished later, and counts in all_outputs.
func (s *State) newest(def *Definition, entries []job.Entry, output string) (last *StepProgress) {
	for _, id := range slices.Concat(entries...) {
		st := def.Job.Step(id)
		if p := s.Progress(id); st != nil && st.Output(output) != nil && p.Done() {
			last = p
		}
	}
	return last
}

// items returns the items of the for_each at an index, as its list was when the step that made it was
// finished.
func (s *State) items(def *Definition, index int) []json.RawMessage {
	each := def.Workflow.Form(index).ForEach
	if p := s.newest(def, def.Workflow.Entries[:index], each.Output); p != nil {
		return p.Lists[each.Output]
	}
	return nil
}

// forEach returns the form of an entry if it is a for_each, or nil.
func forEach(def *Definition, index int) *job.Form {
	if f := def.Workflow.Form(index); f != nil && f.ForEach != nil {
		return f
	}
	return nil
}

// members returns the ids of the steps of an entry, those of a for_each for each item.
func (s *State) members(def *Definition, index int) job.Entry {
	entry := def.Workflow.Entries[index]
	if forEach(def, index) == nil {
		return entry
	}
	n := len(s.items(def, index))
	all := make(job.Entry, 0, n*len(entry))
	for i := range n {
		for _, id := range entry {
			all = append(all, job.Item(id, i))
		}
	}
	return all
}

// progress is that of steps by id: a list of items has too many to be searched for each.
type progress map[string]*StepProgress

func (s *State) byID() progress {
	all := make(progress, len(s.StepProgress))
	for _, p := range s.StepProgress {
		all[p.Key] = p.Value
	}
	return all
}

// dropped reports whether a person has dropped an item.
func (all progress) dropped(entry job.Entry, item int) bool {
	return slices.ContainsFunc(entry, func(id string) bool {
		p := all[job.Item(id, item)]
		return p != nil && p.Dropped != nil
	})
}

// droppedItem returns the word of the person who has dropped the item of a step, or nil.
func (s *State) droppedItem(def *Definition, stepID string) *Override {
	_, i, item := job.SplitItem(stepID)
	index := def.Workflow.Find(stepID)
	if !item || index < 0 {
		return nil
	}
	for _, id := range def.Workflow.Entries[index] {
		if p := s.Progress(job.Item(id, i)); p != nil && p.Dropped != nil {
			return p.Dropped
		}
	}
	return nil
}

// pending returns the steps that are left to do of an item; nil if a person dropped it.
func (all progress) pending(entry job.Entry, item int) (ids []string) {
	if all.dropped(entry, item) {
		return nil
	}
	for _, id := range entry {
		if id = job.Item(id, item); !all[id].Done() {
			ids = append(ids, id)
		}
	}
	return ids
}

// Displayed returns the ids of the steps of an entry, those of items only if they have begun: the steps of the
// form if none has.
func (s *State) Displayed(def *Definition, index int) (ids []string) {
	entry := def.Workflow.Entries[index]
	if forEach(def, index) == nil {
		return entry
	}
	for _, p := range s.StepProgress {
		if def.Workflow.Find(p.Key) == index {
			ids = append(ids, p.Key)
		}
	}
	if ids == nil {
		return entry
	}
	return ids
}

// Open returns the steps that may be worked on now: all that are pending or, of a for_each, of as many
// items as may be in progress, those whose turn it is.
func (s *State) Open(def *Definition, index int, pending []string) (open []string) {
	f := forEach(def, index)
	if f == nil {
		return pending
	}
	entry, done, items := def.Workflow.Entries[index], s.byID(), s.items(def, index)
	begun, room := make([]bool, len(items)), f.ForEach.AtOnce
	for i := range items {
		begun[i] = done.pending(entry, i) != nil && slices.ContainsFunc(entry, func(id string) bool { return done[job.Item(id, i)] != nil })
		if begun[i] && !done.waits(entry, i) { // go_to_step may have led back to others
			room--
		}
	}
	for i := range items {
		if !begun[i] {
			if room <= 0 || done.pending(entry, i) == nil {
				continue
			}
			room--
		}
		for _, part := range f.Body {
			if todo := done.pending(part, i); todo != nil {
				open = append(open, todo...)
				break
			}
		}
	}
	return open
}

// waits reports whether an item waits for a person, which holds up no other one.
func (all progress) waits(entry job.Entry, item int) bool {
	return slices.ContainsFunc(entry, func(id string) bool {
		p := all[job.Item(id, item)]
		return !p.Done() && p != nil && p.Question != nil && p.Question.Answer == nil
	})
}

// text returns what a condition is about, "" if nobody gave it.
func (s *State) text(def *Definition, c *job.Condition, entries []job.Entry) string {
	v, ok := OutputValue{}, false
	if c.Input != "" {
		v, ok = s.Inputs.Get(c.Input)
	} else if p := s.newest(def, entries, c.Output); p != nil {
		v, ok = p.Outputs.Get(c.Output)
	}
	if !ok || v.Text == nil {
		return ""
	}
	return *v.Text
}

// next returns the index of the entry that begins when the one at an index is over, which is that of the
// first entry of a form if its steps are repeated; len(Entries) means that the workflow is complete.
func (s *State) next(def *Definition, index int) int {
	wf := def.Workflow
	if f := wf.Form(index); f != nil && f.Repeat != nil {
		if first, after := wf.Span(f); index == after-1 && !s.ends(def, f) && !s.lastRound(f) {
			return first
		}
	}
	return s.skip(def, index+1)
}

// skip returns the index of the next entry, from one on, that is not left out.
func (s *State) skip(def *Definition, index int) int {
	wf := def.Workflow
	for index < len(wf.Entries) {
		f := wf.Form(index)
		switch {
		case f != nil && f.When != nil && s.leftOut(def, index):
			_, index = wf.Span(f)
		case f != nil && f.ForEach != nil && len(s.items(def, index)) == 0:
			index++
		default:
			return index
		}
	}
	return index
}

// leftOut reports whether the entry at an index belongs to a condition that does not hold.
func (s *State) leftOut(def *Definition, index int) bool {
	f := def.Workflow.Form(index)
	if f == nil || f.When == nil {
		return false
	}
	first, _ := def.Workflow.Span(f)
	return !f.When.Holds(s.text(def, f.When, def.Workflow.Entries[:first]))
}

// ends reports whether what ends the rounds of a repeated form holds.
func (s *State) ends(def *Definition, f *job.Form) bool {
	if f.Repeat.Until.Run != nil {
		p := s.Progress(f.Body[len(f.Body)-1][0])
		return p != nil && p.Ended != nil && p.Ended.Passed
	}
	return f.Repeat.Until.Holds(s.text(def, &f.Repeat.Until, f.Body))
}

// Round returns the round that a repeated form is in.
func (s *State) round(f *job.Form) Round {
	if s != nil {
		if p := s.Progress(f.Body[0][0]); p != nil && p.Round != nil {
			return *p.Round
		}
	}
	return Round{Number: 1, AtMost: f.Repeat.AtMost, Until: f.Repeat.Until.String()}
}

func (s *State) lastRound(f *job.Form) bool { return s.round(f).Number >= f.Repeat.AtMost }

// nextRound returns the round after the one that a form is in, which has not ended the rounds.
func (s *State) nextRound(def *Definition, f *job.Form) *Round {
	r := s.round(f)
	r.Number++
	if p := s.Progress(f.Body[len(f.Body)-1][0]); f.Repeat.Until.Run != nil && p != nil && p.Ended != nil {
		r.Failed = p.Ended.Why
		return &r
	}
	r.Failed = fmt.Sprintf("The text was %s.", jsontext.Clip(strconv.Quote(strings.TrimSpace(s.text(def, &f.Repeat.Until, f.Body))), 500))
	return &r
}

// Exhausted returns why a step cannot be finished with these outputs although it is done: its round was the
// last one, and what ends the rounds does not hold. It is "" otherwise.
func (s *State) Exhausted(def *Definition, p *Plan, fin FinishInput) string {
	f := def.Workflow.Form(p.Index)
	if p.Pending != nil || f == nil || f.Repeat == nil || !s.lastRound(f) {
		return ""
	}
	if _, after := def.Workflow.Span(f); p.Index != after-1 {
		return ""
	}
	n := s.Next(s.UpdatedAt)
	done := n.ProgressOrNew(p.Step.ID, s.UpdatedAt)
	done.CompletedAt, done.Outputs, done.Ended = new(s.UpdatedAt), fin.Outputs, fin.Ended
	n.setProgress(done)
	if n.ends(def, f) {
		return ""
	}
	return fmt.Sprintf("round %d of %d is over, and it does not hold that %s", s.round(f).Number, f.Repeat.AtMost, &f.Repeat.Until)
}

// opening returns the steps that a transition to n begins after a step of the entry at an index was
// finished in it: those of the next entry, or of items whose turn it is now.
func (s *State) opening(def *Definition, index int, pending []string) (next int, ids job.Entry) {
	if pending != nil {
		if forEach(def, index) == nil {
			return index, nil
		}
		begun := s.byID()
		for _, id := range s.Open(def, index, pending) {
			if begun[id] == nil {
				ids = append(ids, id)
			}
		}
		return index, ids
	}
	next = s.next(def, index)
	return next, s.begins(def, next)
}

// begins returns the steps that begin with an entry; nil if it is that after the last.
func (s *State) begins(def *Definition, index int) job.Entry {
	if index >= len(def.Workflow.Entries) {
		return nil
	}
	if forEach(def, index) == nil {
		return def.Workflow.Entries[index]
	}
	// Of what an earlier visit has left, enter makes history.
	bare := *s
	bare.StepProgress = slices.DeleteFunc(slices.Clone(s.StepProgress), func(p jsontext.Pair[*StepProgress]) bool {
		return def.Workflow.Find(p.Key) == index
	})
	return bare.Open(def, index, nil)
}

// Shown returns the members of the current entry that a reply describes: all or, of many items, those that may
// be worked on now.
func (s *State) Shown(def *Definition) job.Entry {
	index, entry, pending := s.Position(def)
	if forEach(def, index) != nil {
		return s.Open(def, index, pending)
	}
	return entry
}

// First returns the steps with which a session of a definition begins; nil means that nothing is to be done.
func First(def *Definition, inputs Outputs) job.Entry {
	s := &State{Inputs: inputs}
	return s.begins(def, s.skip(def, 0))
}

// Begins returns the steps that a finished_step begins, for which it needs the texts.
func (s *State) Begins(def *Definition, p *Plan, fin FinishInput) job.Entry {
	if def.Workflow.Forms == nil { // the usual case
		if p.Pending == nil && p.Index+1 < len(def.Workflow.Entries) {
			return def.Workflow.Entries[p.Index+1]
		}
		return nil
	}
	n := s.Next(s.UpdatedAt)
	done := n.ProgressOrNew(p.Step.ID, s.UpdatedAt)
	done.CompletedAt, done.Outputs, done.Lists, done.Ended = new(s.UpdatedAt), fin.Outputs, fin.Lists, fin.Ended
	n.setProgress(done)
	_, ids := n.opening(def, p.Index, p.Pending)
	return ids
}

// Ends reports whether a finished_step completes the workflow.
func (s *State) Ends(def *Definition, p *Plan, fin FinishInput) bool {
	return p.Pending == nil && s.Begins(def, p, fin) == nil
}

// itemInfo returns the item that a step is about, or nil.
func (s *State) itemInfo(def *Definition, id string) *ItemInfo {
	stepID, i, item := job.SplitItem(id)
	if !item || s == nil {
		return nil
	}
	all := s.items(def, def.Workflow.Find(stepID))
	if i >= len(all) {
		return nil
	}
	return &ItemInfo{Index: i, Count: len(all), Value: all[i]}
}

// RoundOf returns the round that a step is in, or nil.
func (s *State) RoundOf(def *Definition, id string) *Round {
	if f := def.Workflow.Form(def.Workflow.Find(id)); f != nil && f.Repeat != nil {
		return new(s.round(f))
	}
	return nil
}

// Drop records that a person leaves out an item, and goes on with what then has its turn, for which begin
// returns the definition and the instructions.
func (s *State) Drop(def *Definition, id string, o Override, begin func(job.Entry) (*Definition, Instructions, error)) (*State, error) {
	stepID, i, item := job.SplitItem(id)
	if s.Status != Active {
		return nil, s.Ended()
	}
	here, members, _ := s.Position(def)
	entry := def.Workflow.Entries[here]
	if !item || def.Workflow.Find(stepID) != here || !slices.Contains(members, id) || s.byID().pending(entry, i) == nil {
		return nil, session.NotNow(codes.StepNotCurrent, "'%s' is no step of an item that is left to do in session '%s'.", id, s.SessionID)
	}
	n := s.Next(o.At)
	p := n.ProgressOrNew(id, o.At).voided(movedOn, o.At).clone()
	p.Dropped = &o
	n.setProgress(p)
	_, _, pending := n.Position(def)
	f := FinishInput{At: o.At}
	if _, ids := n.opening(def, here, pending); ids != nil {
		var err error
		if def, f.Texts, err = begin(ids); err != nil {
			return nil, err
		}
	}
	n.move(def, here, pending, f, &FinishReply{})
	n.settle(o.At)
	return n, nil
}

// outputsOf returns the names of the outputs of a step of a for_each. A workflow declares none: they are those that
// its items have.
func (s *State) outputsOf(def *Definition, index int, stepID string) (names []string) {
	st := def.Job.Step(stepID)
	for _, o := range st.Outputs {
		names = append(names, o.Name)
	}
	if done := s.byID(); st.Call != nil {
		for i := range s.items(def, index) {
			if p := done[job.Item(stepID, i)]; p.Done() {
				for _, o := range p.Outputs {
					if !slices.Contains(names, o.Key) {
						names = append(names, o.Key)
					}
				}
			}
		}
	}
	return names
}

// each returns the values of an output for each item, null for those that have none.
func (s *State) each(def *Definition, index int, stepID, output string) OutputValue {
	v, done := OutputValue{Each: []*OutputValue{}}, s.byID()
	for i := range s.items(def, index) {
		var one *OutputValue
		if p := done[job.Item(stepID, i)]; p.Done() {
			if value, ok := p.Outputs.Get(output); ok {
				one = &value
			}
		}
		v.Each = append(v.Each, one)
	}
	return v
}

// flat returns the values of all items as one: a list of their paths or, of texts, a JSON list.
func (v OutputValue) flat() OutputValue {
	all, texts := OutputValue{List: true}, []*string{}
	for _, one := range v.Each {
		if one == nil {
			texts = append(texts, nil)
			continue
		}
		if one.Each != nil { // its step is a workflow with items of its own
			one = new(one.flat())
		}
		all.Paths, texts = append(all.Paths, one.Paths...), append(texts, one.Text)
	}
	if slices.ContainsFunc(texts, func(t *string) bool { return t != nil }) {
		if list, err := jsontext.Encode(texts); err == nil {
			return OutputValue{Text: new(string(list))}
		}
	}
	return all
}

// Counts returns how many steps a session has, and how many of them are done, were left out, or have been dropped:
// those of items as soon as their list is known. A nil def is a lost one.
func (s *State) Counts(def *Definition) (done, total int) {
	all := s.byID()
	over := func(id string) bool { p := all[id]; return p.Done() || p != nil && p.Unreported }
	if def == nil {
		for _, p := range s.StepProgress {
			if total++; over(p.Key) {
				done++
			}
		}
		return done, total
	}
	here := def.Workflow.Find(s.CurrentStepID)
	for i, entry := range def.Workflow.Entries {
		ids, passed := entry, i < here || s.Status == Completed
		if passed || i == here {
			ids = s.members(def, i)
		}
		total += len(ids)
		leftOut := passed && s.leftOut(def, i)
		for _, id := range ids {
			if _, item, is := job.SplitItem(id); leftOut || over(id) || is && all.dropped(entry, item) {
				done++
			}
		}
	}
	return done, total
}

// inOrder returns the ids of the steps in the workflow's order, with those of items that have begun.
func (s *State) inOrder(def *Definition) (ids []string) {
	for i := range def.Workflow.Entries {
		ids = append(ids, s.Displayed(def, i)...)
	}
	return ids
}

// appendEach appends the list of the values of items as JSON.
func appendEach(each []*OutputValue) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, v := range each {
		if i > 0 {
			b.WriteByte(',')
		}
		one := []byte("null")
		if v != nil {
			var err error
			if one, err = v.MarshalJSON(); err != nil {
				return nil, err
			}
		}
		b.Write(one)
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}
