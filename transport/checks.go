package transport

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/trust"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
)

// openChecks opens the pool of checks. Those run that the user has approved, in attempts as in the project:
// their scripts are compared as they are where the session works.
func (p *opening) openChecks() {
	now := func(ctx context.Context) *config.Config {
		c, err := p.settings.Current(ctx)
		if err != nil {
			return config.Default() // calls are refused earlier
		}
		return c
	}
	pool := gate.Open(gate.Options{Root: p.root, Logger: p.logger, Settings: func() gate.Settings {
		return gate.Settings{MaxConcurrent: now(context.Background()).Checks.MaxConcurrent}
	}})
	p.opened.add("checks that did not stop", pool.Close)
	p.checks = &check.Runner{
		Pool:    pool,
		Program: func(name string) (string, error) { return trust.Find(p.root, name) },
		Secrets: func() []string { return append(now(context.Background()).Secrets(), config.StoreEnv) }, // which may have a password
		Allowed: p.checkAllowed,
	}
}

// approvesCheck reports whether the user has approved a check of the project.
func (p *opening) approvesCheck(e trust.Entry) bool {
	return p.policy.Ledger.ApprovesCheck(e, p.settings.User().TrustedFolders) == nil
}

// checkAllowed returns why a check may not run, or nil.
func (p *opening) checkAllowed(ctx context.Context, s *check.Subject, c *job.StepCheck) error {
	user, err := p.settings.Own(ctx)
	if err != nil {
		return err
	}
	root, err := filepath.EvalSymlinks(s.Root)
	if err != nil {
		return err
	}
	step, _, _ := job.SplitItem(s.Step) // what is approved is the same for all items
	e, err := trust.CheckOf(root, s.Job, step, c)
	if err != nil {
		return err
	}
	err = p.policy.Ledger.ApprovesCheck(e, user.TrustedFolders)
	if err == nil {
		return nil
	}
	what, remedy := fmt.Sprintf("%v", err), fmt.Sprintf("Ask the user to run `deepwork trust --path %s` in a terminal, then make the same call again.", p.around.Root)
	switch {
	case err == trust.ErrUnapproved && s.Root != p.around.Root:
		what += " as it is here, with this command, folder, limit and script"
	case errors.Is(err, trust.ErrDenied):
		remedy = fmt.Sprintf("They can change that with `deepwork trust --path %s` in a terminal.", p.around.Root)
	}
	return session.NotNow(session.CodeUntrusted, "Step '%s' cannot be finished: it has the check '%s' (%s), and %s. Nothing was run and nothing has moved. %s",
		s.Step, c.Name, strings.Join(c.Run, " "), what, remedy).With("key", e.Key).With("step_id", s.Step).Because(err)
}
