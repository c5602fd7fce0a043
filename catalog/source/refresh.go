package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Refresh queries every source now and waits for their answers for the given time, or until ctx
// ends (seed 003, 4.3). A source that is down is tried once. Sources that fail, or do not answer in
// time, are listed in the report's Silent; their queries continue. An error is that of the settings
// or of ctx, and is returned with the changes so far.
func (c *Catalog) Refresh(ctx context.Context, within time.Duration) (Report, error) {
	before := c.Snapshot()
	if err := c.Reconfigure(ctx); err != nil {
		return compare(before, c.Snapshot()), err
	}
	late := fmt.Errorf("it did not answer within %v; its earlier workflows stay listed", within)
	limited, cancel := context.WithTimeoutCause(ctx, within, late)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex
	silent := make(map[string]error)
	for name, s := range *c.sources.Load() {
		asking.Go(func() {
			if err := s.refresh(limited); err != nil {
				mu.Lock()
				silent[name] = err
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	if ctx.Err() != nil {
		return compare(before, c.Snapshot()), fmt.Errorf("waiting for the sources to answer: %w", context.Cause(ctx))
	}
	if err := c.update(ctx); err != nil {
		return compare(before, c.Snapshot()), err
	}
	now := c.Snapshot()
	report := compare(before, now)
	for _, s := range now.Sources {
		why := silent[s.Name]
		if errors.Is(why, late) {
			why = cmp.Or(s.Err, why) // the reason why it is away has more detail
		}
		if why = cmp.Or(why, s.Err); why != nil {
			report.Silent = append(report.Silent, Skipped{Source: s.Name, Reason: why.Error()})
		}
	}
	return report, nil
}

// refresh waits for a query that starts after the call and returns its error, or the cause of ctx
// if that ends first.
func (s *source) refresh(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case s.requests <- answer:
	case <-s.done:
		return nil // it was removed or replaced
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-answer:
		return err
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
