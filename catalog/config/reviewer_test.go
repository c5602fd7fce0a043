package config

import (
	"strings"
	"testing"
)

// There is one reviewer: a file that names two is refused, and the user's own config replaces the
// project's, whichever key either has.
func TestReviewerExecutor(t *testing.T) {
	for source, want := range map[string]string{
		"quality_gate: {reviewer_executor: CODEX}":                              "CODEX",
		"quality_gate: {reviewer_executor: 'CODEX:PLAN'}":                       "CODEX:PLAN",
		"quality_gate: {reviewer_executor: }":                                   "",
		"quality_gate: {reviewer_executor: codex}":                              `!"codex" is not NAME or NAME:VARIANT of an executor`,
		"quality_gate: {reviewer_executor: 'CODEX:'}":                           `!"CODEX:" is not NAME or NAME:VARIANT`,
		"quality_gate: {reviewer_executor: [CODEX]}":                            "!quality_gate.reviewer_executor",
		"quality_gate: {reviewer_executor: CODEX, agent_review_command: check}": "!has agent_review_command and reviewer_executor, and there is one reviewer: remove one of them",
	} {
		c, faults := Parse("config.yml", []byte(source))
		fault, refused := strings.CutPrefix(want, "!")
		switch {
		case refused && (len(faults) != 1 || !strings.Contains(faults[0].String(), fault)), !refused && faults != nil:
			t.Errorf("%s: %v", source, faults)
		case !refused && c.QualityGate.ReviewerExecutor != want:
			t.Errorf("%s: %q", source, c.QualityGate.ReviewerExecutor)
		}
	}
	for _, test := range []struct{ project, user, command, executor string }{
		{"agent_review_command: theirs", "reviewer_executor: MINE", "", "MINE"},
		{"reviewer_executor: THEIRS", "agent_review_command: mine", "mine", ""},
		{"reviewer_executor: THEIRS", "reviewer_executor: MINE", "", "MINE"},
		{"reviewer_executor: THEIRS", "pin: true", "", "THEIRS"},
	} {
		c, faults := Parse("config.yml", []byte("quality_gate: {"+test.project+"}"))
		u, more := ParseUser("config.yml", []byte("quality_gate: {"+test.user+"}"))
		if faults != nil || more != nil {
			t.Fatal(faults, more)
		}
		if q := u.Over(c).QualityGate; strings.Join(q.AgentReviewCommand, " ") != test.command || q.ReviewerExecutor != test.executor {
			t.Errorf("%+v: %q and %q", test, q.AgentReviewCommand, q.ReviewerExecutor)
		}
	}
}
