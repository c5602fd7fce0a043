package run

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	definition "deepwork/catalog/job"
	"deepwork/session/board"
	"deepwork/session/machine"
	"deepwork/session/show"
	"deepwork/session/why"
)

// A List is the part of a workflow that is done for each item of a list.
type List struct {
	AtOnce int // items in progress at once
	Items  []*Item
}

// An Item is an item of a List.
type Item struct {
	Number int // from 1
	Value  string
	State  board.State
	Said   string // why it is not done or, if nobody has failed it, what its agent said last
	Steps  []*Step
}

// ItemStates are the states of items, first those that may need a person. An item, and a list, has the first state that
// one of its steps, or items, has.
var ItemStates = []board.State{board.WaitingForYou, board.Failed, board.Conflicted, board.Interrupted, board.Stopped,
	board.Paused, board.WaitingForLimit, board.Running, board.Queued, board.Dropped, board.NotBegun, board.Merged,
	board.Completed}

// MoreUrgent returns the one of two states of which a person has to know first.
func MoreUrgent(a, b board.State) board.State {
	if slices.Index(ItemStates, a) < slices.Index(ItemStates, b) {
		return a
	}
	return b
}

// Find returns the items in a state, "" for all, whose number is the text or whose value contains it, ignoring case;
// the most urgent ones first.
func (l *List) Find(state, text string) (all []*Item) {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, of := range ItemStates {
		if state != "" && state != string(of) {
			continue
		}
		for _, i := range l.Items {
			if i.State == of && (text == "" || text == strconv.Itoa(i.Number) ||
				strings.Contains(strings.ToLower(i.Value), text)) {
				all = append(all, i)
			}
		}
	}
	return all
}

// States returns the states that items have, the most urgent one last.
func (l *List) States() (all []board.State) {
	for _, state := range slices.Backward(ItemStates) {
		if l.Find(string(state), "") != nil {
			all = append(all, state)
		}
	}
	return all
}

// Summary says how far the items are, such as: 7 items, 3 at once: 5 completed, 1 failed, 1 waiting for you.
func (l *List) Summary() string {
	text := fmt.Sprintf("%s, %d at once", show.Count(len(l.Items), "item"), l.AtOnce)
	before := ":"
	for _, state := range l.States() {
		text += fmt.Sprintf("%s %d %s", before, len(l.Find(string(state), "")), state.Words())
		before = ","
	}
	return text
}

// list returns a step that stands for those of all items of the form whose entries begin at an index.
func (b *viewBuilder) list(state *machine.State, def *machine.Definition, first, depth int) *Step {
	progress := map[string]*machine.StepProgress{}
	for _, p := range state.StepProgress {
		progress[p.Key] = p.Value
	}

	f := def.Workflow.Form(first)
	all := &Step{
		SessionID: state.SessionID,
		ID:        f.Body[0][0],
		Name:      "For each of " + f.ForEach.Output,
		State:     board.Completed,
		List:      &List{AtOnce: f.ForEach.AtOnce},
		Nested:    make([]Tree, 1),
	}
	for k, value := range state.Items(def, first) {
		item := &Item{Number: k + 1, Value: machine.ItemText(value), State: board.Completed}
		for _, id := range slices.Concat(f.Body...) {
			step := definition.Item(id, k)
			s := b.step(state, def, step, progress[step], depth)
			item.Steps = append(item.Steps, s)
			item.State = MoreUrgent(item.State, s.State)
			if s.State != board.Completed {
				item.Said = cmp.Or(item.Said, s.Progress.Why().Sentence(), why.Line(s.Last))
			}
			all.Took += s.Took
			all.add(s.USD)
		}
		all.State = MoreUrgent(all.State, item.State)
		all.List.Items = append(all.List.Items, item)
		all.Nested[0].Entries = append(all.Nested[0].Entries, item.Steps)
	}
	if all.State == board.WaitingForYou {
		all.Why = whyItems
	}
	return all
}

// add adds a cost, if it is known.
func (s *Step) add(usd *float64) {
	if usd != nil {
		s.USD = new(*usd + *cmp.Or(s.USD, new(0.0)))
	}
}
