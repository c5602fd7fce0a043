package run

import (
	"context"
	"fmt"
	"strconv"

	definition "deepwork/catalog/job"
	"deepwork/session/machine"
	"deepwork/session/replies"
)

// The items of a list whose form asks for isolation have their own worktrees. A worktree is made before the
// first step of an item gets its agent, and the item's last step merges its branch, after the items before
// it. All of that can be found again from the session: a worktree by its folder or its name, and repeating a
// merge that is done changes nothing.

// mayMerge reports whether a merge may be done now: no earlier item is open. members are those of the open
// items, in order.
func mayMerge(stepID string, members []replies.Member) bool {
	_, mine, _ := definition.SplitItem(stepID)
	_, first, _ := definition.SplitItem(members[0].StepID)
	return mine == first
}

// itemWork returns what to do for a step of an item now, in place of starting its agent, or nil. The returned
// function returns what an agent has to do first, if it cannot be done yet.
func (d *leader) itemWork(j stepRef, s *machine.State) func(context.Context) (told string, err error) {
	p := s.Progress(j.step)
	switch {
	case p == nil || d.unmerged[j] != "":
		return nil
	case definition.IsMerge(j.step):
		return func(ctx context.Context) (string, error) {
			told, err := d.attemptLead.LandItem(ctx, p.Folder)
			if err != nil || told != "" {
				return told, err
			}
			if _, err = d.workplace.Finish(ctx, j.session, j.step, nil); err == nil {
				d.attemptLead.Note("step %s: merged", j.step)
				d.attemptLead.RemoveItems(ctx, p.Folder)
			}
			return "", err
		}
	case p.Folder != ".":
		return nil
	}
	_, i, _ := definition.SplitItem(j.step)
	name := fmt.Sprintf("%s-%d-%s", j.session, i, strconv.FormatInt(p.StartedAt.UnixMicro(), 36))
	return func(ctx context.Context) (string, error) {
		folder, err := d.attemptLead.MakeItem(ctx, name)
		if err == nil {
			err = d.workplace.Isolate(ctx, j.session, j.step, folder)
		}
		return "", err
	}
}

// doInstead does something for a step in place of its agent.
func (d *leader) doInstead(ctx context.Context, p stepRef, do func(context.Context) (told string, err error)) {
	x := &agent{stepRef: p, called: true}
	ctx, x.cancel = context.WithCancel(ctx)
	d.agents[p] = x
	d.running.Go(func() {
		defer x.cancel()
		x.mergeAdvice, x.err = do(ctx)
		d.ended <- x
	})
}
