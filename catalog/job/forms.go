package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/actor/xslices"
	"deepwork/catalog/internal/yamltree"
)

// A Form says how an entry of a workflow does its steps, other than once in order: for many items, on a
// condition, or repeatedly. Exactly one of the pointers is set.
type Form struct {
	ForEach *ForEach
	When    *Condition
	Repeat  *Repeat
	Body    []Entry // its steps, in order
}

// ForEach does the steps for each item of a list, several at once.
type ForEach struct {
	// an output of an earlier step: a JSON list of texts or objects, or files
	Output    string `yaml:"for_each" as:"name"`
	AtOnce    int    `yaml:"at_once" min:"1" max:"100"`
	MaxItems  int    `yaml:"max_items" min:"1" max:"10000"`
	Isolation string `yaml:"isolation" oneof:"worktree"` // "" means that the items share the folder
}

// mergePrefix is the prefix of the id of a step that merges an item's branch; the id of the item's first step
// follows, as in merge:port.
const mergePrefix = "merge:"

// IsMerge reports whether a step, perhaps for an item, merges the branch of its item into the run's.
func IsMerge(stepID string) bool { return strings.HasPrefix(stepID, mergePrefix) }

// mergeStep returns the step that merges the branch of an item.
func mergeStep(id string) *Step {
	return &Step{ID: id, Name: "Merge", Description: "Merges the branch of the item into that of the run",
		Instructions: "The run merges the branch of this item into its own, after those of the items before. An " +
			"agent has something to do only if they conflict."}
}

// Merges reports whether the items of a form end with a merge, because each has its own worktree.
func (f *Form) Merges() bool { return f != nil && IsMerge(f.Body[len(f.Body)-1][0]) }

// Isolated returns the workflow for a run that gives items their own worktrees: each item ends with its
// merge.
func (w *Workflow) Isolated() *Workflow {
	isolated := *w
	isolated.Entries, isolated.Forms = slices.Clone(w.Entries), slices.Clone(w.Forms)
	for i, f := range w.Forms {
		if f != nil && f.ForEach != nil && f.ForEach.Isolation != "" && !f.Merges() {
			merge := Entry{mergePrefix + f.Body[0][0]}
			isolated.Entries[i] = slices.Concat(w.Entries[i], merge)
			isolated.Forms[i] = &Form{ForEach: f.ForEach, Body: append(slices.Clip(f.Body), merge)}
		}
	}
	return &isolated
}

// String says in a few words how a form does its steps.
func (f *Form) String() string {
	switch {
	case f.ForEach != nil:
		return fmt.Sprintf("for each of %s, %d at once", f.ForEach.Output, f.ForEach.AtOnce)
	case f.When != nil:
		return "if " + f.When.String()
	}
	return fmt.Sprintf("in rounds until %s, at most %d", &f.Repeat.Until, f.Repeat.AtMost)
}

// The limits for lists of items, unless the author sets others.
const (
	defaultAtOnce   = 4
	defaultMaxItems = 100
)

// A Condition compares a text, with white space trimmed, from an earlier step or from the caller. Exactly one
// of Output and Input is set, and one of Is, IsNot and In. A condition that ends rounds may have only Run
// instead.
type Condition struct {
	Output string   `yaml:"output" as:"name"`
	Input  string   `yaml:"input" as:"name"`
	Is     *string  `yaml:"is" written:""`
	IsNot  *string  `yaml:"is_not" written:""`
	In     []string `yaml:"in" is:"a list of texts" written:"" nonempty:"name the texts that it may be"`

	Run     []string      `yaml:"run" each:"filled" nonempty:"name the program"`
	Timeout time.Duration `yaml:"timeout" min:"1s" max:"24h"` // for Run; 0 means DefaultCheckTimeout
}

// Tags implements fieldtag.Tagger.
func (Condition) Tags() map[string]string {
	return map[string]string{
		"Run": `is:"a program and its arguments, as a list such as [go, test, ./...]"`,
	}
}

// Holds reports whether a text meets the condition.
func (c *Condition) Holds(text string) bool {
	text = strings.TrimSpace(text)
	switch {
	case c.Is != nil:
		return text == strings.TrimSpace(*c.Is)
	case c.IsNot != nil:
		return text != strings.TrimSpace(*c.IsNot)
	}
	return slices.ContainsFunc(c.In, func(one string) bool { return text == strings.TrimSpace(one) })
}

// String returns the condition in words, such as: output verdict is "ready".
func (c *Condition) String() string {
	if c.Run != nil {
		return strings.Join(c.Run, " ") + " passes"
	}

	what := "output " + c.Output
	if c.Input != "" {
		what = "input " + c.Input
	}
	switch {
	case c.Is != nil:
		return what + " is " + yamltree.Quote(*c.Is)
	case c.IsNot != nil:
		return what + " is not " + yamltree.Quote(*c.IsNot)
	}

	return what + " is one of " + strings.Join(xslices.Map(c.In, yamltree.Quote), ", ")
}

// Repeat does the steps until a condition holds at the end of a round.
type Repeat struct {
	Until  Condition `yaml:"until" add:"until: {output: verdict, is: ready}, what ends it"`
	AtMost int       `yaml:"at_most" min:"1" max:"1000"`
}

// Tags implements fieldtag.Tagger.
func (Repeat) Tags() map[string]string {
	return map[string]string{
		"AtMost": `add:"at_most: 5, the number of rounds after which a person is asked"`,
	}
}

// A Call is a workflow that is a step: the session's own workflow continues once the called one is complete.
type Call struct {
	Job      string // "" means the same
	Workflow string
	Inputs   []CallInput // nil in format 2: values are passed by the names of the inputs
}

// A CallInput is the value of an input of a called workflow: the value of an output or input with this name here, the
// item of a for_each, or a text.
type CallInput struct {
	Name  string  `yaml:",key"`
	From  string  // "" if Value is set
	Value *string `yaml:"value" written:""`
}

// ItemName refers to the item of a for_each in the inputs of a workflow that it calls.
const ItemName = "item"

// CallPrefix is the prefix of the id of a step that is a workflow, as in workflow:publish.
const CallPrefix = "workflow:"

// String returns the name in the call: publish, or other_job/publish.
func (c *Call) String() string {
	if c.Job != "" {
		return c.Job + "/" + c.Workflow
	}
	return c.Workflow
}
