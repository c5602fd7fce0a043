package page

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/codes"
)

// configTopic is the topic of changes of the config and of what is approved.
const configTopic = "config"

// A trustPage shows what the project's config asks for.
type trustPage struct {
	File    string
	Entries []trustEntry
	// Waiting means that something is not approved, Denied that the user refused, and Fault says why it cannot be
	// approved. Changed are files and keys.
	Waiting, Denied bool
	Fault           string
	Changed         []string // since the last approval
}

type trustEntry struct {
	Key, Text string
	Line      int
}

func (s *Site) trust(ctx context.Context, who session.Caller, _ *http.Request) (*shown, error) {
	if !who.Owner {
		return nil, session.NotNow(codes.RightNeeded, "The user of this server alone sees what its config asks for.")
	}

	now, err := s.Config(ctx)
	if err != nil {
		return nil, err
	}

	p := &trustPage{File: filepath.Join(".deepwork", config.FileName)}
	if a := now.Approval; a != nil && a.Withheld != nil {
		p.Waiting = true
		p.Denied = a.Withheld.Denied
		p.Fault = a.Withheld.Fault
		p.Changed = a.Withheld.Changed
	}
	file := filepath.Join(s.Root, p.File)
	text, err := durable.ReadIn(s.Root, file, config.MaxBytes)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	asked, faults := config.Parse(file, text)
	if asked == nil {
		return nil, faults
	}
	set, err := trust.SetOf(s.Root, asked)
	if err != nil {
		return nil, err
	}

	lines := config.Places(text)
	checks := trust.ChecksOf(s.Root, s.Jobs(ctx).Jobs)
	p.Waiting = p.Waiting || slices.ContainsFunc(checks, func(e trust.Entry) bool {
		return s.Approves != nil && !s.Approves(e)
	})
	for _, e := range slices.Concat(set, checks) {
		var b strings.Builder
		e.Print(&b, "")
		p.Entries = append(p.Entries, trustEntry{trust.Word(e.Key), b.String(), lines[e.Key]})
	}
	return &shown{view: "trust", title: "Trust", data: p, topics: []string{configTopic, jobsTopic}}, nil
}
