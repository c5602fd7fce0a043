package run

import (
	"context"
	"fmt"
	"strconv"

	definition "deepwork/catalog/job"
	"deepwork/session/workflow/machine"
)

// The items of a list whose form asks for isolation work in worktrees of their own: one is made before the
// first step of an item gets its agent, and its last step is the merge of its branch, after those of the
// items before. All of that is found again from the session: a worktree by its folder or its name, and a
// merge that is done has nothing to do.

// mayMerge reports whether it is the turn of a merge: no item before it is open. members are of the open items, in
// their order.
func mayMerge(stepID string, members []machine.Member) bool {
	_, mine, _ := definition.SplitItem(stepID)
	_, first, _ := definition.SplitItem(members[0].StepID)
	return mine == first
}

// itemWork returns what is to be done for a step of an item instead of starting its agent now, or nil. That returns
// what an agent has to do first, if it cannot be done yet.
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

// doInstead does something for a step in the place of its agent.
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
