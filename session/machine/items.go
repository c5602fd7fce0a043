package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// ItemText returns an item as a text: its own, or an object as JSON without the white space that a record adds.
func ItemText(item json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, item) // it is valid JSON
	text := b.String()
	if jsontext.Kind(item) == "string" {
		_ = json.Unmarshal(item, &text) // it is a JSON string
	}
	return text
}

// ListBytes is the maximum size of a list of items, in bytes.
const ListBytes = 1 << 20

// maxItemDepth limits the nesting of an item: its indented record grows with the square of the depth.
const maxItemDepth = 20

// ShownItems is the maximum number of items' steps that a reply describes or names.
const ShownItems = 20

// ParseItems reads the list in an output: a JSON list of texts or objects.
func ParseItems(output string, raw []byte, most int) (items []json.RawMessage, err error) {
	refuse := func(format string, args ...any) error {
		return session.Wrong(codes.BadList, "Output '%s' is the list of items of a later entry, and "+format,
			append([]any{output}, args...)...).With("output", output)
	}
	if len(raw) > ListBytes {
		return nil, refuse("has %d bytes, more than %d: hand in a shorter list, whose items name files.", len(raw),
			ListBytes)
	}

	err = json.Unmarshal(raw, &items)
	if err == nil && items == nil {
		err = errors.New("null")
	}
	if err != nil {
		return nil, refuse("is not a JSON list (%v). Hand in a list such as [\"a\", \"b\"].", err)
	}

	for i, item := range items {
		if kind := jsontext.Kind(item); kind != "string" && kind != "object" {
			return nil, refuse("its element %d is %s. Its elements must be texts or objects.", i, outputs.KindOf(item))
		} else if jsontext.Depth(item) > maxItemDepth {
			return nil, refuse("its element %d is nested more than %d deep. Have it name a file that has the rest.", i,
				maxItemDepth)
		}
	}
	if len(items) > most {
		return nil,
			refuse("has %d items, more than max_items allows (%d). Make fewer, larger items, or have the user raise "+
				"max_items in job.yml.", len(items), most)
	}
	return items, nil
}

// A ListWanted is a step's output over whose items a later for_each iterates.
type ListWanted struct {
	Output string
	Most   int // maximum number of items
}

// Lists returns the outputs of a step over which later entries iterate. Outputs of items are not included.
func Lists(def *Definition, st *job.Step) (all []ListWanted) {
	here := def.Workflow.Find(st.ID)
	for i, f := range def.Workflow.Forms {
		if f != nil && f.ForEach != nil && i > here && forEach(def, here) == nil && st.Output(f.ForEach.Output) != nil {
			all = append(all, ListWanted{f.ForEach.Output, f.ForEach.MaxItems})
		}
	}
	return all
}

// Items returns the items of the for_each at an index, as of when the step that made the list was finished.
func (s *State) Items(def *Definition, index int) []json.RawMessage {
	each := def.Workflow.Form(index).ForEach
	if _, p := s.made(def, 0, index, each.Output, false); p != nil {
		return p.Lists[each.Output]
	}
	return nil
}

// forEach returns the form of an entry if that is a for_each, or nil.
func forEach(def *Definition, index int) *job.Form {
	if f := def.Workflow.Form(index); f != nil && f.ForEach != nil {
		return f
	}
	return nil
}

// members returns the ids of an entry's steps; for a for_each, those of each item.
func (s *State) members(def *Definition, index int) job.Entry {
	entry := def.Workflow.Entries[index]
	if forEach(def, index) == nil {
		return entry
	}
	n := len(s.Items(def, index))
	all := make(job.Entry, 0, n*len(entry))
	for i := range n {
		for _, id := range entry {
			all = append(all, job.Item(id, i))
		}
	}
	return all
}

// progress maps step ids to progress: with many items, searching the list for each is too slow.
type progress map[string]*StepProgress

func (s *State) byID() progress {
	all := make(progress, len(s.StepProgress))
	for _, p := range s.StepProgress {
		all[p.Key] = p.Value
	}
	return all
}

// dropped returns the override of the person who dropped an item, or nil.
func (all progress) dropped(entry job.Entry, item int) *judging.Override {
	for _, id := range entry {
		if p := all[job.Item(id, item)]; p != nil && p.Dropped != nil {
			return p.Dropped
		}
	}
	return nil
}

// droppedItem returns the override of the person who dropped the item of a step, or nil.
func (s *State) droppedItem(def *Definition, stepID string) *judging.Override {
	_, i, item := job.SplitItem(stepID)
	index := def.Workflow.Find(stepID)
	if !item || index < 0 {
		return nil
	}
	return s.byID().dropped(def.Workflow.Entries[index], i)
}

// pending returns the steps of an item that are left to do; nil if a person dropped the item.
func (all progress) pending(entry job.Entry, item int) (ids []string) {
	if all.dropped(entry, item) != nil {
		return nil
	}
	for _, id := range entry {
		if id = job.Item(id, item); !all[id].Done() {
			ids = append(ids, id)
		}
	}
	return ids
}

// Displayed returns the ids of an entry's steps. It includes the steps of items that have begun, and the
// form's own steps before that.
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

// Open returns the steps that may be worked on now: all pending ones or, in a for_each, the next ones of as
// many items as may be in progress at once.
func (s *State) Open(def *Definition, index int, pending []string) (open []string) {
	f := forEach(def, index)
	if f == nil {
		return pending
	}
	entry := def.Workflow.Entries[index]
	done := s.byID()
	items := s.Items(def, index)
	begun, room := make([]bool, len(items)), f.ForEach.AtOnce
	for i := range items {
		begun[i] = done.pending(entry, i) != nil &&
			slices.ContainsFunc(entry, func(id string) bool { return done[job.Item(id, i)] != nil })
		if begun[i] && !done.waits(entry, i) { // go_to_step may have begun more than these
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

// Turns returns the steps of items whose turn has come, and that have not begun, because an earlier item
// waits for a person.
func (s *State) Turns(def *Definition) (ids job.Entry) {
	index, _, pending := s.Position(def)
	if forEach(def, index) != nil && len(pending) > 0 {
		_, ids = s.opening(def, index, pending)
	}
	return ids
}

// TakeTurns begins the steps that Turns returns. s is being made.
func (s *State) TakeTurns(def *Definition, ids job.Entry, at time.Time) {
	s.Definition = def.Ref
	s.setProgress(s.begun(def, ids, at)...)
}

// done returns how many of a step's items are done, and how many there are.
func (all progress) done(stepID string, items int) (done, of int) {
	for i := range items {
		if all[job.Item(stepID, i)].Done() {
			done++
		}
	}
	return done, items
}

// waits reports whether an item waits for a person; such an item does not hold up others.
func (all progress) waits(entry job.Entry, item int) bool {
	return slices.ContainsFunc(entry, func(id string) bool {
		p := all[job.Item(id, item)]
		return !p.Done() && p != nil && p.AsksPerson() != nil
	})
}

// itemInfo returns the item that a step is about, or nil.
func (s *State) itemInfo(def *Definition, id string) *replies.ItemInfo {
	stepID, i, item := job.SplitItem(id)
	if !item || s == nil {
		return nil
	}
	all := s.Items(def, def.Workflow.Find(stepID))
	if i >= len(all) {
		return nil
	}
	return &replies.ItemInfo{Index: i, Count: len(all), Value: all[i]}
}

// Droppable returns why Drop refuses a step, or nil.
func (s *State) Droppable(def *Definition, id string) error {
	stepID, i, item := job.SplitItem(id)
	if s.Status != Active {
		return s.Ended()
	}

	here, members, _ := s.Position(def)
	if !item || def.Workflow.Find(stepID) != here || !slices.Contains(members, id) ||
		s.byID().pending(def.Workflow.Entries[here], i) == nil {
		return session.NotNow(codes.StepNotCurrent,
			"'%s' is not a step of an unfinished item in session '%s': expected one such as port[3]. `deepwork "+
				"sessions show %[2]s` lists its steps.", id, s.SessionID)
	}
	return nil
}

// Drop records that a person drops an item, and begins the steps whose turn comes then. begin returns the
// definition and the instructions of those.
func (s *State) Drop(
	def *Definition, id string, o judging.Override, begin func(job.Entry) (*Definition, Instructions, error),
) (*State, error) {
	if err := s.Droppable(def, id); err != nil {
		return nil, err
	}

	here, _, _ := s.Position(def)
	n := s.Next(o.At)
	_, i, _ := job.SplitItem(id)
	for _, member := range def.Workflow.Entries[here] { // ends the whole item, whichever of its steps was named
		member = job.Item(member, i)
		if member == id || n.Progress(member).Current() {
			p := n.ProgressOrNew(member, o.At).left(movedOn, o.At).clone()
			p.Dropped, p.Folder = &o, s.Folder(def, id)
			n.setProgress(p)
		}
	}
	_, _, pending := n.Position(def)
	f := FinishInput{At: o.At}
	if _, ids := n.opening(def, here, pending); ids != nil {
		var err error
		if def, f.Texts, err = begin(ids); err != nil {
			return nil, err
		}
		n.Definition = def.Ref
	}
	n.move(def, here, pending, f, &replies.Finish{})
	n.settle(o.At)
	return n, nil
}

// Folder returns the folder in which a step that begins now works, relative to the session's: its item's, "."
// if the item gets one later, or "" for the session's own. A nil State means no session.
func (s *State) Folder(def *Definition, id string) string {
	_, i, item := job.SplitItem(id)
	if s == nil || !s.Isolated || !item || !forEach(def, def.Workflow.Find(id)).Merges() {
		return ""
	}

	folder := "."
	for _, member := range def.Workflow.Entries[def.Workflow.Find(id)] {
		p := s.Progress(job.Item(member, i))
		if job.IsMerge(member) && p.Done() {
			return "."
		}
		if p != nil && p.Folder != "" {
			folder = p.Folder
		}
	}
	return folder
}

// RootOf returns the folder in which an unfinished step is worked on; root is the session's folder.
func (s *State) RootOf(root, stepID string) string {
	if p := s.Progress(stepID); p != nil {
		return filepath.Join(root, p.Folder)
	}
	return root
}

// begun returns the progress of steps that begin now.
func (s *State) begun(def *Definition, ids []string, at time.Time) []*StepProgress {
	all := make([]*StepProgress, len(ids))
	for i, id := range ids {
		all[i] = &StepProgress{StepID: id, StartedAt: at, Protected: def.Protected[id], Folder: s.Folder(def, id)}
	}
	return all
}

// Isolate records the folder in which a step's item is worked on from now on, and the files there that its
// steps protect by def. "" means that the item was merged; then only its merge keeps its folder.
func (s *State) Isolate(def *Definition, id, folder string, at time.Time) *State {
	_, i, _ := job.SplitItem(id)
	n := s.Next(at)
	for _, member := range def.Workflow.Entries[def.Workflow.Find(id)] {
		if p := n.Progress(job.Item(member, i)); p != nil && (!p.Done() || folder == "" && !job.IsMerge(member)) {
			p = p.clone()
			p.Folder = folder
			if folder != "" {
				p.Protected = def.Protected[p.StepID]
			}
			n.setProgress(p)
		}
	}

	return n
}

// outputsOf returns the names of the outputs of a step of a for_each. A step that is a workflow declares
// none; it has those of its items.
func (s *State) outputsOf(def *Definition, index int, stepID string) (names []string) {
	st := def.Job.Step(stepID)
	for _, o := range st.Outputs {
		names = append(names, o.Name)
	}
	if done := s.byID(); st.Call != nil {
		for i := range s.Items(def, index) {
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

// each returns the values of an output for all items, null for an item without one.
func (s *State) each(def *Definition, index int, stepID, output string) outputs.Value {
	v, done := outputs.Value{Each: []*outputs.Value{}}, s.byID()
	for i := range s.Items(def, index) {
		var one *outputs.Value
		if p := done[job.Item(stepID, i)]; p.Done() {
			if value, ok := p.Outputs.Get(output); ok {
				one = &value
			}
		}
		v.Each = append(v.Each, one)
	}
	return v
}
