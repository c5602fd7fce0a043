package session

import (
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
			"a source":   Untrusted("/p", a, config.SourcesKey).Error(),
			"an agent":   Untrusted("/p", a, config.AgentsKey).Error(),
			"sources":    UntrustedSources("/p", cfg, "Not asked:").Error(),
			"the notice": UntrustedNotice("/p", a),
		} {
			testkit.True(t, strings.Contains(text, c.want) && (c.want != "" || !strings.Contains(text, "Changed since")), "%s, changed %q: %s", what, c.changed, text)
		}
	}
}
