package session

import (
	"fmt"
	"strings"
	"testing"

	"deepwork/actor/testkit"

	"deepwork/catalog/config"
)

// What is refused because a script or the config has changed since its approval names that.
func TestField21_RefusalsNameWhatChanged(t *testing.T) {
	ci := config.Asked{Key: config.SourcesKey + "ci", Text: "./ci.sh"}
	for _, c := range []struct {
		changed []string
		want    string
	}{
		{nil, ""},
		{[]string{"ci.sh", "git.branch in .deepwork/config.yml"}, " Changed since the last approval: ci.sh, git.branch in .deepwork/config.yml."},
		{[]string{"a.sh", strings.Repeat("b", 1000)}, " Changed since the last approval: a.sh, bbb"},
	} {
		a := &config.Approval{Withheld: &config.Withheld{Asked: []config.Asked{{Key: config.AgentsKey, Text: "may be started"}, ci}, Changed: c.changed}}
		cfg := config.Default()
		cfg.Approval = a
		for what, text := range map[string]string{
			"a source":   Untrusted("/my p", a, config.SourcesKey).Error(),
			"an agent":   Untrusted("/my p", a, config.AgentsKey).Error(),
			"sources":    UntrustedSources("/my p", cfg, "Not asked:").Error(),
			"the notice": UntrustedNotice("/my p", a),
		} {
			testkit.Contains(t, text, "`deepwork trust --path '/my p'` in a terminal", what)
			testkit.True(t, strings.Contains(text, c.want) && (c.want != "" || !strings.Contains(text, "Changed since")), "%s, changed %q: %s", what, c.changed, text)
		}
	}
}

// Whatever is not in force is named, to a bound, with what helps; what was approved needs no word.
func TestWhatIsNotApproved(t *testing.T) {
	var asked []config.Asked
	for i := range 11 {
		asked = append(asked, config.Asked{Key: fmt.Sprint(config.SourcesKey, "s", i), Text: "./ci"})
	}
	agents := config.Asked{Key: config.AgentsKey}
	approval := func(w config.Withheld) *config.Approval { return &config.Approval{Withheld: &w} }
	cfg := config.Default()
	for n, want := range map[int]string{5: "'s4' (./ci). Nothing", 6: "'s4' (./ci), 1 more. Nothing"} {
		cfg.Approval = approval(config.Withheld{Asked: asked[:n]})
		testkit.Contains(t, UntrustedSources("/p", cfg, "Not asked:").Error(), want)
	}
	testkit.Contains(t, UntrustedSources("/p", cfg, "Not asked:", "s3").Error(), "Not asked: 's3' (./ci). Nothing")
	testkit.Works(t, UntrustedSources("/p", cfg, "Not asked:", "s9"))
	for n, want := range map[int]string{10: "s9), so", 11: "s9, 1 more), so"} {
		testkit.Contains(t, UntrustedNotice("/p", approval(config.Withheld{Asked: append([]config.Asked{agents}, asked[:n]...)})), want)
	}
	denied, faulty := approval(config.Withheld{Asked: append(asked[:1:1], agents), Denied: true}), approval(config.Withheld{Asked: asked[:1], Fault: "it is a link"})
	kept := approval(config.Withheld{Asked: asked[:1]})
	kept.Use = cfg
	testkit.ContainsAll(t, Untrusted("/p", denied, config.AgentsKey, "codex", "exec").Error(), []string{"The user denied everything", "start a coding agent in it: codex exec. Nothing", "They can change that"})
	testkit.Contains(t, Untrusted("/my p", approval(config.Withheld{Asked: asked[:1]}), config.SourcesKey).Error(), "`deepwork trust --path '/my p'`")
	testkit.Contains(t, Untrusted("/p", denied, config.SourcesKey).Error(), "The config, or their own one, asks to run or use ./ci")
	testkit.Contains(t, Untrusted("/p", faulty, config.SourcesKey).Error(), "It cannot be approved: it is a link. Tell the user")
	testkit.Contains(t, UntrustedNotice("/p", denied), "The user denied everything that would run in this project (workflow_tools.sources.s0), so it is not in force")
	testkit.Contains(t, UntrustedNotice("/p", kept), "so what was approved before stays in force")
	for _, a := range []*config.Approval{nil, {}, kept} {
		testkit.Works(t, Untrusted("/p", a, config.SourcesKey))
	}
	testkit.Works(t, Untrusted("/p", faulty, config.AgentsKey), "agents were not asked for")
	testkit.Equal(t, UntrustedNotice("/p", nil)+UntrustedNotice("/p", &config.Approval{})+UntrustedNotice("/p", approval(config.Withheld{Asked: []config.Asked{agents}})), "")
}
