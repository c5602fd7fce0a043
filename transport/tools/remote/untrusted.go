package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	sources "deepwork/catalog/source"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/remote"
)

// untrusted refuses a call that needs a source which the user has not approved: the name of its
// tool may be from an earlier list. nil means that all are approved. what is how the message begins.
func (r *Tools) untrusted(ctx context.Context, what string) error {
	settings, err := r.Settings(ctx)
	if err != nil {
		return nil
	}
	return session.UntrustedSources(r.Root, settings, what)
}

// unasked refuses a call about a run whose source may not be asked now, for want of the user's
// approval. nil means that it may be. The run stays, and is followed again with the approval.
func (r *Tools) unasked(ctx context.Context, x *remote.Run) error {
	err := r.changed(r.catalog.Snapshot(), x.Source)
	if settings, serr := r.Settings(ctx); serr == nil && err == nil {
		err = session.UntrustedSources(r.Root, settings, fmt.Sprintf("Run '%s' may go on, but its source cannot be asked about it, because the user has not approved it:", x.ExecutionID), x.Source)
	}
	if refusal, is := errors.AsType[*session.Error](err); is {
		return refusal.With("run", x).With("execution_id", x.ExecutionID)
	}
	return err
}

// changed refuses a call of a source whose program is not the one that the user approved; nil means
// that it is another reason why the source is away.
func (r *Tools) changed(now *sources.Snapshot, source string) error {
	for _, s := range now.Sources {
		if s.Name == source && errors.Is(s.Err, trust.ErrChanged) {
			return session.Changed(r.Root, s.Err)
		}
	}
	return nil
}

// withheld returns the sources that the user has not approved, as not available.
func (r *Tools) withheld(ctx context.Context) []sources.Skipped {
	settings, err := r.Settings(ctx)
	if err != nil {
		return nil
	}
	all := xslices.Map(settings.WithheldSources(), func(a config.Asked) sources.Skipped {
		return sources.Skipped{Source: strings.TrimPrefix(a.Key, config.SourcesKey), Reason: fmt.Sprintf(
			"the user has not approved it (%s): ask them to run `deepwork trust --path %s` in a terminal", a.Text, r.Root)}
	})
	return all
}
