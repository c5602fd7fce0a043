package transport

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"deepwork/catalog/config"
	"deepwork/catalog/trust"
)

// The script of a reviewer that a session is pinned to is compared again when its turn comes.
func TestAPinnedReviewerThatIsSwapped(t *testing.T) {
	root := t.TempDir()
	script := filepath.Join(root, "review.sh")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700))
	cfg, faults := config.Parse("config.yml", []byte("quality_gate: {agent_review_command: [./review.sh]}"))
	set, err := trust.SetOf(root, cfg)
	if faults != nil || err != nil {
		t.Fatal(faults, err)
	}
	approval := &config.Approval{Files: []map[string]string{set[len(set)-1].Files}}
	r := &reviewing{root: root, work: root, approved: func(string, []string) (*config.Approval, error) { return approval, nil }}
	reviewer, err := r.earlier(`["./review.sh"]`)
	if err != nil || reviewer.Program != script || reviewer.Allowed() != nil {
		t.Fatal(reviewer, err)
	}
	must(t, os.WriteFile(script, []byte("#!/bin/sh\necho swapped\n"), 0o700))
	if err := reviewer.Allowed(); !errors.Is(err, trust.ErrChanged) {
		t.Error(err)
	}
}
