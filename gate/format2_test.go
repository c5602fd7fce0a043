package gate

import (
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

// format2 is a submission of a text and of files, with one review that is changed by the test.
func (p *project) format2(change func(r *job.Review)) Submission {
	for _, f := range []string{"a.md", "b.md"} {
		p.write(f, "content of "+f+"\n")
	}
	s := p.submission("docs").submit("docs", "a.md", "b.md")
	s.Step.Outputs = []job.Output{{Name: "docs", Type: job.FilePath}, {Name: "summary", Type: job.Text}}
	s.Outputs = append(s.Outputs, Output{Name: "summary", Text: new("The text")})
	s.Notes = "I wrote it\nin one go."
	change(&s.Step.Reviews[0])
	return s
}

// Rules 14, 18, 21 and 26: what each review is of, and what its reviewers read.
func TestRules14And18And21And26_Reviews(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		change       func(r *job.Review)
		keys         []string
		prompt, self []string // what the reviewers read
		not          string
	}{
		{"individual", func(r *job.Review) {}, []string{"0/docs/a.md", "0/docs/b.md"},
			[]string{"Scope: one file of output `docs`: `a.md`", "Author notes"}, []string{"Scope: each file of output `docs`, separately."}, "content of b.md"},
		{"together", func(r *job.Review) { r.Together = true }, []string{"0/docs"},
			[]string{"Scope: all files of output `docs` together.", "content of a.md", "content of b.md"}, []string{"Scope: all files of output `docs` together:\n\n  - `a.md`\n  - `b.md`\n"}, "The text"},
		{"text", func(r *job.Review) { r.RunEach, r.Together = "summary", true }, []string{"0/summary"},
			[]string{"Scope: output `summary`, a text.", "output `summary`, a text ====\nThe text\n==== END"}, []string{"Scope: output `summary`.\n\n- **complete**", "- `summary`, a text:\n\n> The text\n"}, "content of"},
		{"others", func(r *job.Review) { r.RunEach, r.OtherOutputs = "summary", true }, []string{"0/summary"},
			[]string{"## Other outputs of the step (for reference; not judged here)\n\n- `docs`: a.md, b.md\n"}, nil, "content of"},
		{"another text", func(r *job.Review) { r.Together, r.OtherOutputs = true, true }, []string{"0/docs"},
			[]string{"not judged here)\n\n- `summary`: a text\n"}, nil, "The text"},
		{"account", func(r *job.Review) { r.RunEach, r.Account = "step", true }, []string{"0/step"},
			[]string{"by its author's account and its outputs", "## The author's account of the work\n", "> in one go.", "the author's account or the outputs show it", "give your verdict on the account"},
			[]string{"Scope: how the step was done", "## The author's account of the work\n"}, "Author notes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProject(t)
			s := p.format2(c.change)
			if got := keys(p.plan(s)); !slices.Equal(got, c.keys) {
				t.Errorf("planned %q, want %q", got, c.keys)
			}
			got, self := p.prompted(s, 0, 5, true), SelfReview(s)
			prompt := got.system + string(got.stdin)
			for _, want := range c.prompt {
				testkit.True(t, strings.Contains(prompt, want), "the prompt lacks %q:\n%s", want, prompt)
			}
			for _, want := range c.self {
				testkit.True(t, strings.Contains(self, want), "the instructions lack %q:\n%s", want, self)
			}
			testkit.True(t, !strings.Contains(prompt, c.not), "the prompt has %q", c.not)
		})
	}
}

// Rule 21: without an output, the account alone is judged, and never skipped.
func TestRule21_TheAccountAlone(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	s := p.format2(func(r *job.Review) { r.RunEach, r.Account = "step", true })
	s.Outputs = nil
	got := p.prompted(s, 0, 5, true)
	if !strings.Contains(got.system, "Scope: how the step was done, by its author's account and its outputs, if it has any.\n") || !strings.Contains(string(got.stdin), "> I wrote it") {
		t.Errorf("%s\n%s", got.system, got.stdin)
	}
}

// A text is shown however many files there are, and is not looked for on the disk.
func TestATextIsAlwaysShown(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	s := p.format2(func(r *job.Review) { r.RunEach = "step" })
	got := string(p.prompted(s, 0, 0, true).stdin)
	testkit.True(t, strings.Contains(got, "\nThe text\n") && !strings.Contains(got, "content of") && strings.Contains(got, "2 files, not shown here"), "%v", got)
	// The reviewer ran, and nothing has changed on the disk.
	fault(t, <-collect(t, t.Context(), p.gate(always(Settings{Command: []string{"true"}, MaxInlineFiles: 5})), "a", s, p.plan(s)), NoVerdict)
}

// A verdict is for the text, the account and the names of other outputs that it was given for.
func TestDigestsOfTextsAndAccounts(t *testing.T) {
	t.Parallel()
	digest := func(review func(r *job.Review), change func(s *Submission)) string {
		s := newProject(t).format2(review)
		change(&s)
		return Plan(s, nil)[0].Digest
	}
	text := func(s *Submission) { s.Outputs[1].Text = new("Another text") }
	notes := func(s *Submission) { s.Notes = "other" }
	names := func(s *Submission) { s.Outputs[0].Paths = []string{"c.md"} }
	for _, c := range []struct {
		name   string
		review func(r *job.Review)
		change func(s *Submission)
		same   bool
	}{
		{"text", func(r *job.Review) { r.RunEach = "summary" }, text, false},
		{"text in step", func(r *job.Review) { r.RunEach = "step" }, text, false},
		{"notes", func(r *job.Review) { r.RunEach = "step" }, notes, true},
		{"account", func(r *job.Review) { r.RunEach, r.Account = "step", true }, notes, false},
		{"other names", func(r *job.Review) { r.RunEach, r.OtherOutputs = "summary", true }, names, false},
		{"names of no use", func(r *job.Review) { r.RunEach = "summary" }, names, true},
	} {
		if was, is := digest(c.review, func(*Submission) {}), digest(c.review, c.change); (was == is) != c.same {
			t.Errorf("%s: the digests are %s and %s", c.name, was, is)
		}
	}
}
