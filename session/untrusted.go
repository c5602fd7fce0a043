package session

import (
	"fmt"
	"slices"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	"deepwork/session/codes"
)

// Untrusted returns the error of a call that needs the value of a config key that the user has not approved
// (config.Withheld.Of), or nil if it is approved. root is the project's; command is what would run, if the
// key alone does not say that.
func Untrusted(root string, a *config.Approval, key string, command ...string) error {
	if !a.Unapproved() {
		return nil
	}
	ofUser := map[string]string{config.AgentsKey: "start a coding agent", config.ReviewerKey: "start the reviewer"}[key]
	if ofUser != "" {
		key = config.AgentsKey
	}

	asked, ok := a.Withheld.Of(key)
	if !ok {
		return nil
	}
	what := "Its config asks to run or use " + asked.Text + " (" + asked.Key + ")"
	reason := "What the project " + root + " runs is not approved. "
	if a.Withheld.Denied {
		reason = "Everything that would run in the project " + root + " was denied. "
		what = "A config asks to run or use " + asked.Text + " (" + asked.Key + ")"
	}
	if ofUser != "" {
		what = "This would " + ofUser + " in it"
		if len(command) > 0 {
			what += ": " + strings.Join(command, " ")
		}
	}
	return unapproved(root, a.Withheld, reason+what, asked)
}

// UntrustedSources returns the error of a call that needs, or may need, one of these sources, or nil if
// nothing is withheld (config.Config.WithheldSources). The message begins with what, and lists the sources.
// only names the sources that matter; empty means all.
func UntrustedSources(root string, cfg *config.Config, what string, only ...string) error {
	asked := slices.DeleteFunc(cfg.WithheldSources(), func(a config.Asked) bool {
		return only != nil && !slices.Contains(only, strings.TrimPrefix(a.Key, config.SourcesKey))
	})
	if len(asked) == 0 {
		return nil
	}

	const most = 5
	shown := xslices.Map(asked[:min(len(asked), most)], func(a config.Asked) string {
		return "'" + strings.TrimPrefix(a.Key, config.SourcesKey) + "' (" + a.Text + ")"
	})
	if n := len(asked) - most; n > 0 {
		shown = append(shown, fmt.Sprintf("%d more", n))
	}
	return unapproved(root, cfg.Approval.Withheld, what+" "+strings.Join(shown, ", "), asked[0])
}

func unapproved(root string, w *config.Withheld, what string, asked config.Asked) error {
	e := NotNow(codes.Untrusted, "%s%s. Nothing was run or changed.", what, w.Since()).With("key",
		asked.Key).With("asked", asked.Text)
	run := "`deepwork trust --path " + InShell(root) + "` in a terminal"
	switch {
	case w.Denied:
		return e.Add("A person can change that with %s.", run)
	case w.Fault != "":
		return e.Add("It cannot be approved: %s.", w.Fault).Ask("correct that, then run %s", run)
	}
	return e.Ask("run %s, then try again", run)
}

// Changed returns the error of a call that needs a program that has changed since its approval. err says how.
func Changed(root string, err error) error {
	return NotNow(codes.Untrusted,
		"This would run a program that has changed since it was approved: %v. Nothing was run or changed.", err).
		Ask("review it and run `deepwork trust --path %s` in a terminal, then try again", InShell(root)).Because(err)
}

// UntrustedNotice says which parts of a project's config are ignored because the user has not approved them.
// It returns "" if only the start of agents is not approved, and the user has no reviewer of their own.
func UntrustedNotice(root string, c *config.Config) string {
	a, q := c.Approval, c.QualityGate
	if a == nil || a.Withheld == nil {
		return ""
	}
	if a.Withheld.Plain() {
		if !a.Unapproved() || q.AgentReviewCommand == nil && q.ReviewerExecutor == "" {
			return ""
		}
		return fmt.Sprintf("The user has not approved this folder, so their own reviewer does not run in it, and "+
			"steps that it reviews cannot be finished: ask them to run `deepwork trust --path %s` in a terminal.",
			InShell(root))
	}

	var keys []string
	for _, asked := range a.Withheld.Asked {
		if asked.Key != config.AgentsKey {
			keys = append(keys, asked.Key)
		}
	}

	const most = 10
	if n := len(keys); n > most {
		keys = append(keys[:most], fmt.Sprintf("%d more", n-most))
	}

	what := "it is not in force"
	if a.Use != nil {
		what = "what was approved before stays in force"
	}
	if a.Withheld.Denied {
		return fmt.Sprintf("The user denied everything that would run in this project (%s), so it is not in force. "+
			"They can change that with `deepwork trust --path %s` in a terminal.",
			strings.Join(keys, ", "), InShell(root))
	}
	return fmt.Sprintf("The user has not approved what .deepwork/config.yml asks for (%s), so %s: ask them to run "+
		"`deepwork trust --path %s` in a terminal%s.",
		strings.Join(keys, ", "), what, InShell(root), a.Withheld.Since())
}
