package config

import (
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// mapping reads a mapping with these keys, all of them optional; null is an empty
// mapping, as in a file whose entries are commented out.
func (p *parser) mapping(v value, keys ...yamltree.Key) {
	p.Mapping(v, yamltree.Shape{Keys: keys})
}

// key returns a key of a mapping.
var key = yamltree.Optional

func (p *parser) config(v value, c *Config) {
	p.mapping(v,
		key("version", p.version(&c.Version)),
		key("platforms", p.texts(&c.Platforms)),
		key("quality_gate", func(v value) { p.qualityGate(v, &c.QualityGate) }),
		key("git", func(v value) {
			p.mapping(v, key("branch", func(v value) {
				if s, ok := p.oneOf(v, string(BranchName), string(BranchCreate), string(BranchCheckout)); ok {
					c.Git.Branch = GitBranch(s)
				}
			}))
		}),
		key("toolsets", func(v value) { p.toolsets(v, &c.Toolsets) }),
		key("http", func(v value) { p.http(v, &c.HTTP) }),
		key("workflow_tools", func(v value) { p.workflowTools(v, &c.WorkflowTools) }),
		key("projects", func(v value) { p.projects(v, &c.Projects) }),
		key("executors", func(v value) { p.executors(v, &c.Executors) }),
		key("attempts", func(v value) { p.attempts(v, &c.Attempts) }),
		key("run", func(v value) { p.run(v, &c.Run) }),
		key("sessions", func(v value) { p.mapping(v, key("keep_ended", p.keepEnded(&c.Sessions.KeepEnded))) }),
		p.usersOnly("trusted_folders", "", func(v value) { p.folders(&p.user.TrustedFolders)(v) }),
		p.usersOnly("prices", "", func(v value) { p.prices(v, &c.Prices) }),
		p.usersOnly("notify", "", p.command(&c.Notify)),
		p.usersOnly("worker", "", func(v value) {
			p.mapping(v, key("projects", func(v value) { p.workerProjects(v, &p.user.WorkerProjects) }))
		}),
		p.usersOnly("store", "--store", set(func(v value, _ *yaml.Node) {
			if s, ok := p.text(v); ok && !strings.HasPrefix(s, "postgres://") && !strings.HasPrefix(s, "postgresql://") {
				p.fault(v, "is not the URL of a store: expected one such as postgres://user@host/database?sslmode=verify-full")
			} else if ok {
				p.user.Store = s
			}
		})),
	)
}

func (p *parser) qualityGate(v value, q *QualityGate) {
	was := *q
	p.mapping(v,
		key("agent_review_command", p.command(&q.AgentReviewCommand)),
		key("reviewer_executor", p.executorName(&q.ReviewerExecutor)),
		key("default_timeout", p.duration(0, &q.DefaultTimeout)),
		key("default_max_attempts", p.whole(1, maxCount, &q.DefaultMaxAttempts)),
		key("max_concurrent_reviews", p.whole(1, maxCount, &q.MaxConcurrentReviews)),
		key("reply_within", p.duration(time.Millisecond, &q.ReplyWithin)),
		key("max_inline_files", p.whole(0, maxCount, &q.MaxInlineFiles)),
		key("pin", p.boolean(&q.Pin)),
		key("override", choice(p, &q.Override, Overrides...)),
	)
	switch {
	case len(q.AgentReviewCommand) == 0 || q.ReviewerExecutor == "":
	case was.ReviewerExecutor != "": // of the project, below the user's own config
		q.ReviewerExecutor = ""
	case len(was.AgentReviewCommand) > 0:
		q.AgentReviewCommand = nil
	default:
		p.fault(v, "has agent_review_command and reviewer_executor, and there is one reviewer: remove one of them")
	}
}

// keepEnded reads a duration that is 0 or at least an hour: a session that ended a moment ago may
// still be looked at.
func (p *parser) keepEnded(to *time.Duration) func(value) {
	return set(func(v value, _ *yaml.Node) {
		d := *to
		if p.durationUpTo(maxKept, 0, &d)(v); d != 0 && d < time.Hour {
			p.fault(v, "is %v; expected 0 (forever) or at least 1h", d)
			return
		}
		*to = d
	})
}

// maxKept is ten years.
const maxKept = 10 * 365 * 24 * time.Hour

func (p *parser) toolsets(v value, to *[]string) {
	count, ok := p.List(v, "a list of "+strings.Join(Toolsets, ", "), func(_ int, v value) {
		if s, ok := p.oneOf(v, Toolsets...); ok && !slices.Contains(*to, s) {
			*to = append(*to, s)
		}
	})
	if ok && count == 0 {
		p.fault(v, "is empty, which would leave no tool; leave the key out to have the default")
	}
}
