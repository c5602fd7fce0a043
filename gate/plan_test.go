package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/catalog/job"
)

func keys(tasks []Task) (keys []string) {
	for _, t := range tasks {
		keys = append(keys, t.Key)
	}
	return keys
}

func TestPlanOneTaskForEachJudgement(t *testing.T) {
	p := newProject(t)
	for _, f := range []string{"r.md", "a.md", "b.md"} {
		p.write(f, "content of "+f)
	}
	s := p.submission("step", "docs", "report").submit("report", "r.md").submit("docs", "a.md", "b.md", "a.md")
	tasks := p.plan(s)
	if want := []string{"0/step", "1/docs/a.md", "1/docs/b.md", "2/report/r.md"}; !slices.Equal(keys(tasks), want) {
		t.Fatalf("got %q, want %q", keys(tasks), want)
	}
	if tasks[0].Target != nil || len(tasks[0].Files) != 4 || tasks[0].Files[0].Output != "report" {
		t.Errorf("the whole step: %+v", tasks[0])
	}
	sum := sha256.Sum256([]byte("content of b.md"))
	if f := tasks[2].Files; len(f) != 1 || f[0] != (File{"docs", "b.md", hex.EncodeToString(sum[:])}) || *tasks[2].Target != "b.md" {
		t.Errorf("one file: %+v", tasks[2])
	}
	if tasks[3].Target == nil || *tasks[3].Target != "r.md" {
		t.Errorf("a file output: %+v", tasks[3])
	}
}

func TestPlanOfWhatWasNotSubmitted(t *testing.T) {
	p := newProject(t)
	p.write("r.md", "r")
	s := p.submission("docs", "step").submit("report", "r.md")
	if got := keys(p.plan(s)); !slices.Equal(got, []string{"1/step"}) {
		t.Errorf("an optional output left out: %q", got)
	}
	if got := keys(p.plan(s.submit("docs"))); !slices.Equal(got, []string{"1/step"}) {
		t.Errorf("an empty list: %q", got)
	}
	if tasks := p.plan(p.submission("step")); len(tasks) != 1 || len(tasks[0].Files) != 0 {
		t.Errorf("nothing at all: %+v", tasks)
	}
}

func TestDigestIsOfAllThatAVerdictDependsOn(t *testing.T) {
	base := func() (Submission, map[string]string) {
		s := newProject(t).submission("step").submit("report", "r.md").submit("docs", "a.md")
		return s, map[string]string{"r.md": "11", "a.md": "22"}
	}
	digest := func(change func(s *Submission, h map[string]string)) string {
		s, h := base()
		if change != nil {
			change(&s, h)
		}
		return Plan(s, h)[0].Digest
	}
	first := digest(nil)
	if first != digest(nil) || len(first) != 64 {
		t.Fatalf("not stable: %s, %s", first, digest(nil))
	}
	for name, same := range map[string]func(s *Submission, h map[string]string){
		"notes":   func(s *Submission, _ map[string]string) { s.Notes = "new" },
		"session": func(s *Submission, _ map[string]string) { s.SessionID = "ffffffff" },
	} {
		if digest(same) != first {
			t.Errorf("%s: the digest is another", name)
		}
	}
	seen := map[string]string{first: "nothing"}
	for name, other := range map[string]func(s *Submission, h map[string]string){
		"content":     func(_ *Submission, h map[string]string) { h["r.md"] = "12" },
		"path":        func(s *Submission, h map[string]string) { s.Outputs[0].Paths = []string{"R.md"}; h["R.md"] = "11" },
		"output":      func(s *Submission, _ map[string]string) { s.Outputs[0].Name = "docs" },
		"order":       func(s *Submission, _ map[string]string) { slices.Reverse(s.Outputs) },
		"one less":    func(s *Submission, _ map[string]string) { s.Outputs = s.Outputs[:1] },
		"description": func(s *Submission, _ map[string]string) { s.Step.Description += "!" },
		"question":    func(s *Submission, _ map[string]string) { s.Step.Reviews[0].Criteria[0].Question += "!" },
		"criterion":   func(s *Submission, _ map[string]string) { s.Step.Reviews[0].Criteria[0].Name += "!" },
		"moved": func(s *Submission, _ map[string]string) {
			c := &s.Step.Reviews[0].Criteria[0]
			c.Name, c.Question = c.Name+c.Question[:1], c.Question[1:]
		},
		"a criterion more": func(s *Submission, _ map[string]string) {
			s.Step.Reviews[0].Criteria = append(s.Step.Reviews[0].Criteria, job.Criteria{})
		},
		"guidance":       func(s *Submission, _ map[string]string) { s.Step.Reviews[0].Guidance = new("x") },
		"empty guidance": func(s *Submission, _ map[string]string) { s.Step.Reviews[0].Guidance = new("") },
	} {
		d := digest(other)
		if was, there := seen[d]; there {
			t.Errorf("%s has the digest of %s", name, was)
		}
		seen[d] = name
	}
}

func TestHashFiles(t *testing.T) {
	p := newProject(t)
	p.write("a.md", strings.Repeat("a", 1<<20))
	p.write("dir/b.md", "")
	abs := filepath.Join(p.root, "a.md")
	got, err := HashFiles(context.Background(), p.root, []string{"a.md", "dir/b.md", "a.md", abs})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(strings.Repeat("a", 1<<20)))
	if len(got) != 3 || got["a.md"] != hex.EncodeToString(sum[:]) || got[abs] != got["a.md"] ||
		got["dir/b.md"] != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("got %v", got)
	}
	outside := filepath.Join(t.TempDir(), "x")
	os.WriteFile(outside, nil, 0o600)
	for path, want := range map[string]error{"none": fs.ErrNotExist, "dir": ErrNotRegular, outside: ErrOutside, "../x": nil} {
		if _, err := HashFiles(context.Background(), p.root, []string{"a.md", path}); err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A sparse file takes no room on disk and may claim any size.
func TestAnOutputTooLargeToReviewIsRefused(t *testing.T) {
	p := newProject(t)
	f, err := os.Create(filepath.Join(p.root, "huge"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 40); err != nil {
		t.Skip("no sparse files here:", err)
	}
	if _, err := HashFiles(t.Context(), p.root, []string{"huge"}); err == nil || !strings.Contains(err.Error(), "'huge'") || !strings.Contains(err.Error(), "at most") {
		t.Errorf("HashFiles: %v", err)
	}
}
