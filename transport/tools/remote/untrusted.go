package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"deepwork/catalog/config"
	sources "deepwork/catalog/remote"
	"deepwork/catalog/trust"
	"deepwork/session"
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
	var all []sources.Skipped
	for _, a := range settings.WithheldSources() {
		all = append(all, sources.Skipped{Source: strings.TrimPrefix(a.Key, config.SourcesKey), Reason: fmt.Sprintf(
			"the user has not approved it (%s): ask them to run `deepwork trust --path %s` in a terminal", a.Text, r.Root)})
	}
	return all
}
